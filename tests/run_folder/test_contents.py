"""Spec and summary of a run are read as the models that wrote them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import KINDS
from sparring.contracts.specs import EvalSpec
from sparring.contracts.summaries import AuditSummary, EvalSummary, TrainSummary
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import (
    find_summary,
    read_history_rows,
    read_run_spec,
    read_summary,
    sampled,
    write_summary,
)
from sparring.run_folder.files import append_line, write_json
from tests.summaries import complete

SAMPLES = sorted((Path(__file__).parents[1] / "samples" / "runs").glob("*/report/summary.json"))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "swift-lark")
    made.create(EvalSpec(target="shop.py:Shop").model_dump(mode="json"))
    return made


def test_a_spec_is_of_its_kind_and_says_which_field_is_wrong(folder: RunFolder) -> None:
    assert read_run_spec(folder) == EvalSpec(target="shop.py:Shop")
    write_json(folder.spec, {"kind": "eval", "target": "x", "cases": 0})
    with pytest.raises(InvalidInput, match=r"spec\.json: cases: .* greater than or equal to 1"):
        read_run_spec(folder)
    write_json(folder.spec, {"kind": "dance"})
    with pytest.raises(InvalidInput, match="kind is 'dance'; this version knows audit"):
        read_run_spec(folder)


def test_reading_a_summary_that_is_missing_names_the_run_and_the_next_step(
    folder: RunFolder,
) -> None:
    assert find_summary(folder, EvalSummary) is None
    with pytest.raises(InvalidInput, match="run swift-lark has no results to report yet; let it"):
        read_summary(folder, EvalSummary)


@pytest.mark.parametrize("sample", SAMPLES, ids=[each.parts[-3] for each in SAMPLES])
def test_a_summary_is_written_as_it_was_read(folder: RunFolder, sample: Path) -> None:
    content = json.loads(sample.read_text())
    model = KINDS[content.get("kind", "eval")].summary
    write_json(folder.summary, content)
    summary = read_summary(folder, model)
    folder.summary.unlink()
    write_summary(folder, summary)
    written = json.loads(folder.summary.read_text())
    assert json.dumps(written, sort_keys=True) == json.dumps(content, sort_keys=True)
    other = AuditSummary if model is not AuditSummary else EvalSummary
    assert find_summary(folder, other) is None


def test_a_summary_with_a_field_that_nobody_knows_is_refused(folder: RunFolder) -> None:
    write_json(folder.summary, {"kind": "audit", "run": "r", "charm": 1})
    with pytest.raises(InvalidInput, match=r"summary\.json: measures: Field required"):
        read_summary(folder, AuditSummary)
    assert find_summary(folder, AuditSummary) is None


def test_a_loss_that_is_no_number_is_kept_as_it_is(folder: RunFolder) -> None:
    write_summary(folder, complete(TrainSummary, {"last": {"loss": math.nan}}))
    assert math.isnan(read_summary(folder, TrainSummary).last["loss"])


def written(folder: Path, *rows: dict[str, Any]) -> RunFolder:
    run = RunFolder(folder)
    for row in rows:
        append_line(run.metrics, row)
    return run


def test_lines_of_one_step_are_one_row(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        {"attempt": 1, "step": 1, "loss": 0.5},
        {"attempt": 1, "step": 1, "validation/reward": 0.7},
        {"attempt": 1, "step": 2, "loss": 0.4},
    )
    first, second = read_history_rows(run)
    assert first == {"attempt": 1, "step": 1, "loss": 0.5, "validation/reward": 0.7}
    assert second["loss"] == 0.4


def test_steps_that_a_later_attempt_did_again_are_left_out(tmp_path: Path) -> None:
    """The second attempt resumed from the checkpoint of step 2."""
    first = [{"attempt": 1, "step": step, "loss": 1.0, "old": True} for step in (1, 2, 3, 4)]
    second = [{"attempt": 2, "step": 3, "loss": 0.5}]
    rows = read_history_rows(written(tmp_path, *first, *second))
    assert [(row["step"], row["loss"]) for row in rows] == [(1, 1.0), (2, 1.0), (3, 0.5)]
    assert "old" not in rows[2]


def test_rows_that_a_replaced_attempt_writes_late_are_left_out(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        {"attempt": 1, "step": 1, "loss": 1.0},
        {"attempt": 2, "step": 2, "loss": 0.5},
        {"attempt": 1, "step": 2, "loss": 9.0},
        {"attempt": 1, "step": 3, "loss": 9.0},
    )
    assert [row["loss"] for row in read_history_rows(run)] == [1.0, 0.5]


def test_a_run_without_metrics_has_no_rows(tmp_path: Path) -> None:
    assert read_history_rows(RunFolder(tmp_path)) == []


@given(st.integers(0, 60), st.integers(0, 20), st.integers(0, 60))
def test_a_sample_is_in_order_without_repeats_and_keeps_both_ends_and_the_best(
    length: int, count: int, best: int
) -> None:
    rows = [{"step": step} for step in range(length)]
    steps = [row["step"] for row in sampled(rows, count, best)]
    assert len(steps) == min(length, count)
    assert steps == sorted(set(steps))
    if steps:
        assert steps[-1] == length - 1
    if len(steps) > 1:
        assert steps[0] == 0
    if len(steps) > 2 and best < length:
        assert best in steps


def test_a_sample_has_the_first_and_the_last_row() -> None:
    rows = [{"step": number} for number in range(100)]
    assert [row["step"] for row in sampled(rows, 3)] == [0, 50, 99]
    assert sampled(rows, 0) == []
    assert sampled(rows, 1) == [{"step": 99}]
    assert sampled(rows[:2], 10) == rows[:2]
    assert [row["step"] for row in sampled(rows, 4, best=70)] == [0, 33, 70, 99]
