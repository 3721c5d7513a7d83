"""The training section shows settings with their sources, and what reproduces the run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.specs import python_target
from sparring.contracts.summaries import TrainSummary
from sparring.reports.document import Block, Folded, Gallery, Grid
from sparring.reports.training_report import (
    TrainingFacts,
    flat,
    panels_of,
    shortened,
    training_blocks,
)
from tests.summaries import complete

HISTORY = [
    {"step": 1, "reward": 0.25, "pass_rate/exact": 0.5, "entropy": 2.0},
    {"step": 2, "reward": 0.5, "validation/reward": 0.75, "pass_rate/exact": 0.75},
]


def facts(**given: Any) -> TrainingFacts:
    return TrainingFacts(
        **{"run": "swift-lark", "spec": {}, "summary": None, "history": [], "manifest": {}} | given
    )


def rows_of(blocks: list[Block | None], title: str) -> dict[str, tuple[str, ...]]:
    """The rows of the table in a fold_events block, by their first column."""
    fold_events = next(each for each in blocks if isinstance(each, Folded) and title in each.title)
    (grid,) = fold_events.blocks
    assert isinstance(grid, Grid)
    return {row[0]: tuple(row[1:]) for row in grid.rows}


def about(**given: Any) -> dict[str, str]:
    grid = next(each for each in training_blocks(facts(**given)) if isinstance(each, Grid))
    return {row[0]: row[1] for row in grid.rows}


def test_a_training_that_has_just_begun_is_described_by_its_spec() -> None:
    shown = about(spec={"target": "shop.py:Shop", "policy": {"model": "tiny"}})
    assert shown == {
        "run": "swift-lark", "environment": "shop.py:Shop", "model": "tiny", "plan": "",
        "time": "–", "weights": "–",
    }  # fmt: skip


def test_the_summary_goes_before_the_spec_and_the_best_checkpoint_before_the_last() -> None:
    given = {"model": "qwen", "best_checkpoint": "step-4", "last_checkpoint": "step-8"}
    summary = complete(TrainSummary, given)
    shown = about(spec={"policy": {"model": "tiny"}}, summary=summary)
    assert (shown["model"], shown["weights"]) == ("qwen", "step-4")


def test_each_setting_has_its_source_and_its_lock() -> None:
    spec = {
        "settings": {"beta": 0.5, "max_steps": 7, "temperature": 0.8},
        "config": {"size": 3},
        "sources": {"beta": "sparring.toml"},
        "locks": {"beta": "the owner"},
    }
    rows = rows_of(training_blocks(facts(spec=spec)), "Settings")
    assert rows["beta"] == ("0.5", "sparring.toml", "the owner")
    assert rows["max_steps"] == ("7", "Python", "")
    assert rows["temperature"] == ("0.8", "default", "")
    assert rows["config.size"] == ("3", "default", "")


def test_a_run_from_python_has_its_tables_from_python_too() -> None:
    spec = {"target": python_target("adder"), "settings": {"lora": {"r": 8}, "temperature": 0.8}}
    rows = rows_of(training_blocks(facts(spec=spec)), "Settings")
    assert rows["lora.r"] == ("8", "Python", "")
    assert rows["temperature"] == ("0.8", "default", "")


def test_versions_and_digests_of_the_checkpoint_are_shown() -> None:
    manifest = {"digests": {"suite": "abc"}, "versions": {"torch": "2.9"}}
    blocks = training_blocks(facts(spec={"code_digest": "def"}, manifest=manifest))
    rows = rows_of(blocks, "To reproduce it")
    assert (rows["code"], rows["suite"], rows["torch"]) == (("def",), ("abc",), ("2.9",))


def test_curves_skip_the_steps_without_a_value() -> None:
    panels = panels_of(HISTORY)
    training, validation = panels["reward"]
    assert (training.steps, training.values) == ([1, 2], [0.25, 0.5])
    assert (validation.steps, validation.values) == ([2], [0.75])
    (rate,) = panels["pass rate"]
    assert (rate.label, rate.values) == ("exact", [0.5, 0.75])
    assert panels["loss on tool results"][0].values == []


@pytest.mark.parametrize(("history", "pictures"), [([], 0), (HISTORY, 3)])
def test_only_curves_with_values_become_pictures(
    history: list[dict[str, Any]], pictures: int
) -> None:
    blocks = training_blocks(facts(history=history))
    drawn = [each for each in blocks if isinstance(each, Gallery)]
    assert sum(len(each.pictures) for each in drawn) == pictures


def test_nested_settings_have_dotted_names_and_empty_tables_stay() -> None:
    table = {"lora": {"r": 8, "on": {"q": True}}, "engine": {}, "seed": 0}
    assert flat(table) == {"lora.r": 8, "lora.on.q": True, "engine": {}, "seed": 0}


@given(st.text(), st.integers(1, 30))
def test_a_shortened_text_fits_and_begins_as_it_did(text: str, longest: int) -> None:
    cut = shortened(text, longest)
    assert len(cut) <= longest
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))
