"""Short forms of what is shown of runs keep what a decision needs; requests name known kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from sparring.contracts.errors import NotFinished
from sparring.contracts.kinds import KINDS
from sparring.operations.run_views import (
    ListRuns,
    News,
    Results,
    RunLine,
    RunPage,
    ShownRun,
    WaitFor,
)
from sparring.runs.lifecycle import RunState

RUN: dict[str, Any] = {"run": "shop-1", "kind": "train", "state": RunState.RUNNING}


def page(count: int, after: str = "") -> RunPage:
    facts = {**RUN, "environment": "shop", "model": "tiny", "author": "ada"}
    lines = [
        RunLine.model_validate({**facts, "run": f"shop-{number}", "created": 1.0, "minutes": 2.0})
        for number in range(count)
    ]
    return RunPage(runs=tuple(lines), next=after)


def metrics(step: int) -> dict[str, float]:
    row = {"step": step, "reward": 0.5, "pass_rate/right": 0.75, "validation/reward": 0.25}
    return {**row, "loss": 1.5, "kl": 0.1, "grad_norm": 3.0, "validation/pass_rate/right": 1.0}


@pytest.mark.parametrize("kind", ["", *KINDS])
def test_runs_are_listed_by_a_known_kind(kind: str) -> None:
    assert ListRuns(kind=kind).kind == kind


def test_an_unknown_kind_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValidationError, match=r"there is no kind 'trian'; there are .*train"):
        ListRuns(kind="trian")


@pytest.mark.parametrize("timeout", [-0.1, 45.1])
def test_a_wait_is_bounded_so_that_a_call_returns(timeout: float) -> None:
    with pytest.raises(ValidationError, match="timeout"):
        WaitFor(run="shop-1", timeout=timeout)


def test_the_beginning_of_a_page_is_continued_where_it_ends() -> None:
    whole = page(3, after="shop-9")
    first = whole.first(2)
    assert [each.run for each in first.runs] == ["shop-0", "shop-1"]
    assert first.next == "shop-1"
    for count in (3, 4):
        assert whole.first(count).next == "shop-9"


def test_a_short_run_has_no_folder_and_of_its_progress_what_it_does_and_how_long() -> None:
    progress = {"doing": "playing", "seconds_left": 0, "said": ["hello"], "metrics": {"kl": 1}}
    facts = {**RUN, "environment": "shop", "model": "tiny", "folder": "/runs/shop-1"}
    shown = ShownRun.model_validate({**facts, "step": 3, "progress": progress}).short()
    assert (shown.folder, shown.step, shown.progress) == ("", 3, {"doing": "playing"})
    assert ShownRun.model_validate(facts).short().progress == {}


def results(**summary: Any) -> Results:
    rows = tuple(metrics(step) for step in (1, 2))
    return Results(**RUN, summary=summary, final=metrics(2), history=rows)


def test_short_results_keep_rewards_and_pass_rates_in_every_row_and_losses_in_the_last() -> None:
    short = results().short()
    brief = {"step", "reward", "pass_rate/right", "validation/reward", "validation/pass_rate/right"}
    assert [set(row) for row in short.history] == [brief, brief]
    assert set(short.final) == brief | {"loss", "kl"}
    assert short.final["step"] == 2


@pytest.mark.parametrize(("steps", "kept"), [((), []), ((1,), [1]), ((1, 2, 3), [1, 3])])
def test_short_results_keep_the_first_and_the_last_validation(
    steps: tuple[int, ...], kept: list[int]
) -> None:
    summary = results(validation=[metrics(step) for step in steps]).short().summary
    assert [row["step"] for row in summary["validation"]] == kept
    assert all("grad_norm" not in row for row in summary["validation"])


def test_a_short_summary_repeats_nothing_and_counts_cases_without_listing_them() -> None:
    told = {"kind": "train", "run": "shop-1", "cases_digest": "ab", "best_checkpoint": "step-2"}
    assert results(**told, verdict="better", cases=12).short().summary == {
        "verdict": "better",
        "cases": 12,
    }
    assert results(cases=[{"case": "c1"}]).short().summary == {}


def test_news_of_a_run_that_has_not_ended_have_the_code_for_that() -> None:
    event = {"event": "checkpoint", "step": 3, "time": 1.0, "epoch": 2, "attempt": 1}
    told: dict[str, Any] = {"run": "shop-1", "state": "running", "has_ended": False, "message": ""}
    news = News.model_validate({**told, "news": (event,), "cursor": 77})
    assert news.exit_code == NotFinished.exit_code == 101
    assert news.short().news == ({"event": "checkpoint", "step": 3},)
    assert json.loads(news.short().model_dump_json())["cursor"] == 77
