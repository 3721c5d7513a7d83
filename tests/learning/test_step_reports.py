"""Reports of steps: one row per step, a refusal where nothing is scored, one warning."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sparring.contracts.errors import GuardStop, InfrastructureError
from sparring.contracts.training import Guards
from sparring.learning.guards import GuardMonitor
from sparring.learning.hooks import Hooks
from sparring.learning.step_counts import StepCounts
from sparring.learning.step_reports import StepReports, merged_over_ranks
from tests.learning.notebook_engine import NotebookEngine
from tests.rollouts import rollout


class Reported:
    """Reports with what they told the hooks."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.warnings: list[str] = []
        hooks = Hooks(
            on_step=lambda step, row: self.rows.append((step, row)),
            on_warning=self.warnings.append,
        )
        self.engine = NotebookEngine()
        self.reports = StepReports(hooks, GuardMonitor(Guards()), self.engine)

    def report(self, step: int = 1, *, rank: int = 0, **means: float) -> None:
        self.engine.rank, self.engine.means = rank, means
        self.reports.report(step)


@pytest.fixture
def reported() -> Reported:
    return Reported()


def counts(*rewards: float | None) -> StepCounts:
    return StepCounts.of(rollout("x", reward=reward) for reward in rewards)


def test_all_counts_since_the_last_report_make_one_row(reported: Reported) -> None:
    reported.reports.add(counts(1.0))
    reported.reports.add(counts(0.0, 0.5))
    reported.report(4, loss=0.25)
    ((step, row),) = reported.rows
    assert (step, row["rollouts"], row["reward"], row["loss"]) == (4, 3, 0.5, 0.25)


def test_a_row_has_nothing_of_the_step_before(reported: Reported) -> None:
    reported.reports.add(counts(1.0, 1.0))
    reported.report(1)
    reported.reports.add(counts(0.0))
    reported.report(2)
    assert [(row["rollouts"], row["reward"]) for _, row in reported.rows] == [(2, 1.0), (1, 0.0)]


def test_a_row_has_the_figures_of_the_engine_and_the_losses_on_tool_results(
    reported: Reported,
) -> None:
    reported.engine.sums = {"env_loss/find": 6.0, "env_tokens/find": 4.0}
    reported.reports.add(counts(1.0))
    reported.report(loss=0.0, reward=7.0)
    row = reported.rows[0][1]
    assert (row["loss"], row["env_loss/find"]) == (0.0, 1.5)
    assert row["reward"] == 1.0, "that of the rollouts, not the engine's"


def test_a_step_is_reported_once(reported: Reported) -> None:
    reported.reports.add(counts(1.0))
    reported.report(1)
    reported.report(1)
    assert len(reported.rows) == 1


def test_only_the_main_process_writes_but_every_process_is_guarded(reported: Reported) -> None:
    reported.reports.add(counts(1.0))
    with pytest.raises(GuardStop, match="the loss was nan"):
        reported.report(rank=1, loss=math.nan)
    assert reported.rows == []


def test_the_row_of_a_step_that_is_stopped_is_written_first(reported: Reported) -> None:
    reported.reports.add(counts(1.0))
    with pytest.raises(GuardStop):
        reported.report(loss=math.inf)
    assert reported.rows[0][1]["loss"] == math.inf


def test_a_start_without_any_reward_is_refused_with_its_cause(reported: Reported) -> None:
    reported.reports.add(counts(None, None), "the judge is away")
    reported.reports.add(counts(None), "another")
    with pytest.raises(
        InfrastructureError,
        match="none of the first 3 rollouts could be scored: the judge is away",
    ):
        reported.report()
    assert reported.rows == []


def test_a_start_without_rewards_is_refused_even_if_no_rank_knows_the_cause(
    reported: Reported,
) -> None:
    reported.reports.add(counts(None))
    with pytest.raises(InfrastructureError, match="no cause is known"):
        reported.report()


def test_a_step_without_rewards_after_one_with_some_is_no_reason_to_stop(
    reported: Reported,
) -> None:
    reported.reports.add(counts(1.0))
    reported.report(1)
    reported.reports.add(counts(None), "away")
    reported.report(2)
    assert [row["unscored"] for _, row in reported.rows] == [0, 1]


def test_unscored_rollouts_are_warned_of_once(reported: Reported) -> None:
    for step in (1, 2):
        reported.reports.add(counts(1.0, None, 0.0), "the judge is away")
        reported.report(step)
    assert reported.warnings == ["1 of 3 rollouts could not be scored: the judge is away"]


def test_scored_rollouts_cause_no_warning(reported: Reported) -> None:
    reported.reports.add(counts(1.0, 0.0))
    reported.report()
    assert reported.warnings == []


def test_counts_of_a_single_rank_stay_as_they_are() -> None:
    own = counts(1.0, None, 0.25)
    merged = merged_over_ranks(own, NotebookEngine())
    assert merged == own
    assert merged.sums["never counted"] == 0


def test_a_guard_counts_the_steps_between_reports_and_stops_after_a_save() -> None:
    rows: list[int] = []
    guards = Guards.model_validate({"dead_groups": {"steps": 7}})
    hooks = Hooks(on_step=lambda step, _: rows.append(step))
    reports = StepReports(hooks, GuardMonitor(guards), NotebookEngine())
    for step in (3, 6, 7):  # three steps to a report, and a last one
        assert reports.guard_stop is None
        reports.add(counts(1.0).plus(groups=1, **{"dead/failed": 1}))
        reports.report(step)
    assert rows == [3, 6, 7]
    assert reports.guard_stop is not None
    assert "for 7 steps in a row" in str(reports.guard_stop)
