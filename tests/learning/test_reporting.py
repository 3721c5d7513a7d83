"""Counts, callbacks, reports and files of a training's steps."""

from __future__ import annotations

import json
import math
import os
import pickle
import threading
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import GuardStop, InfrastructureError
from sparring.contracts.rollouts import Ending
from sparring.contracts.training import Guards, TrainSettings
from sparring.contracts.verdicts import Judgement, cannot_tell, failed, passed
from sparring.learning import reporting
from sparring.learning.batches import BatchPlan, resolve_batches
from sparring.learning.engine import Parity
from sparring.learning.guards import GuardMonitor
from sparring.learning.reporting import Hooks, Reporter, StepCounts, StepReports, merged_over_ranks
from sparring.learning.rows import LearningRollout, masked_row
from sparring.run_folder import RunFolder
from tests.learning.notebook_engine import NotebookEngine
from tests.rollouts import rollout

VERDICTS = {True: passed("yes"), False: failed("no"), None: cannot_tell("who knows")}


def made(reward, advantage, ending=Ending.ANSWERED):
    judged = (Judgement("right", VERDICTS[None if reward is None else reward > 0.5], 1.0),)
    return replace(
        rollout("x", ending=ending, reward=reward, judgements=judged), advantage=advantage
    )


rollouts = st.builds(
    made,
    st.sampled_from([0.0, 1.0, None]),
    st.sampled_from([None, 0.0, 1.5]),
    st.sampled_from([Ending.ANSWERED, Ending.TOKEN_BUDGET, Ending.UNPARSABLE_CALL]),
)


@given(st.lists(st.lists(rollouts, min_size=4, max_size=4), min_size=2, max_size=8))
def test_counts_of_ranks_add_up_to_the_counts_of_all(groups):
    whole = StepCounts.of(each for group in groups for each in group)
    parts = [StepCounts.of(group) for group in groups]
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    assert StepCounts.merged(sent).metrics() == whole.metrics()


def test_figures_are_shares_and_means_of_what_was_scored():
    figures = StepCounts.of([made(1.0, 1.0), made(0.0, -1.0), made(None, None)]).metrics()
    assert figures["reward"] == 0.5
    assert (figures["reward_min"], figures["reward_max"]) == (0.0, 1.0)
    assert figures["advantage"] == 0.0
    assert figures["pass_rate/right"] == 0.5
    assert figures["unscored"] == 1 / 3


def test_only_rollouts_with_tools_have_a_call_rate():
    counts = StepCounts.of([made(1.0, 1.0), made(0.0, -1.0)])
    assert "call_rate" not in counts.metrics()
    assert counts.plus(with_tools=2).metrics()["call_rate"] == 0.0


def test_no_rollouts_give_no_figures():
    assert StepCounts().metrics() == {}


def test_a_validation_has_a_score_if_nine_tenths_were_scored():
    nine, one = [made(1.0, None)] * 9, [made(None, None)]
    assert StepCounts.of(nine + one).score() == 1.0
    assert StepCounts.of(nine + one * 2).score() is None
    assert StepCounts().score() is None


def test_without_hooks_every_rollout_is_learned_from_and_nothing_stops() -> None:
    learned = [LearningRollout((masked_row(1),), 1.0)]
    hooks = Hooks()
    assert hooks.on_learned(learned) is learned
    assert hooks.should_stop() is False


def test_every_report_may_be_left_out() -> None:
    hooks = Hooks()
    reports = [
        hooks.on_step(1, {}),
        hooks.on_validation(1, {}),
        hooks.on_parity(Parity(1, 0.0, 0.0, "float32")),
        hooks.on_warning("careful"),
        hooks.on_saved(1, Path("step-1")),
        hooks.on_doing("playing", 1),
    ]
    assert reports == [None] * (len(fields(Hooks)) - 2), "all but on_learned and should_stop"


def test_hooks_cannot_be_exchanged_while_a_training_runs() -> None:
    hooks = Hooks()
    with pytest.raises(FrozenInstanceError):
        hooks.should_stop = lambda: True


class Reported:
    """Reports with what the hooks got."""

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


class Clock:
    """The seconds that a test says have passed."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now / 2

    def time(self) -> float:
        return 1e9


class Noted:
    """Stands in for the trackers."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.is_finished = False

    def log(self, step: int, figures: Mapping[str, Any]) -> None:
        self.logged.append((step, dict(figures)))

    def finish(self) -> None:
        self.is_finished = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(reporting, "time", made)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def plan(steps: int = 10, save_steps: int = 4) -> BatchPlan:
    settings = TrainSettings(max_steps=steps, save_steps=save_steps)
    return resolve_batches(settings, training_cases=100)


def reporter(folder: RunFolder, **options: Any) -> Reporter:
    made = options.pop("plan", None) or plan()
    return Reporter(folder, made, options.pop("trackers", Noted()), **options)


def metrics(folder: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]


def heartbeat(folder: RunFolder) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(folder.heartbeat.read_text())
    return read


def test_a_step_is_one_row_with_its_attempt_and_its_time(folder: RunFolder, clock: Clock) -> None:
    trackers = Noted()
    reports = reporter(folder, attempt=3, trackers=trackers)
    clock.now += 4
    reports.step(1, {"loss": 0.5})
    figures = {"loss": 0.5, "seconds": 4.0, "cpu_seconds": 2.0}
    assert metrics(folder) == [{"attempt": 3, "step": 1, **figures}]
    assert trackers.logged == [(1, figures)]


def test_a_row_for_several_steps_has_the_time_of_one(folder: RunFolder, clock: Clock) -> None:
    reports = reporter(folder)
    clock.now += 12
    reports.step(4, {})
    assert (metrics(folder)[0]["seconds"], metrics(folder)[0]["cpu_seconds"]) == (3.0, 1.5)


def test_a_validation_has_names_of_its_own_and_is_not_part_of_a_step(
    folder: RunFolder, clock: Clock
) -> None:
    reports = reporter(folder)
    clock.now += 30
    reports.validation(0, {"reward": 0.25})
    clock.now += 2
    reports.step(1, {"reward": 0.5})
    assert metrics(folder)[0] == {"attempt": 1, "step": 0, "validation/reward": 0.25}
    assert metrics(folder)[1]["seconds"] == 2.0
    assert heartbeat(folder)["validation"] == 0.25
    assert heartbeat(folder)["validated_at"] == 0


def test_the_time_left_counts_the_steps_and_the_validations_ahead(
    folder: RunFolder, clock: Clock
) -> None:
    reports = reporter(folder, plan=plan(steps=10, save_steps=4))
    clock.now += 30
    reports.validation(0, {})
    clock.now += 2
    reports.step(1, {})
    # Nine steps of 2 s, and validations at steps 4, 8 and 10.
    assert heartbeat(folder)["seconds_left"] == 9 * 2 + 3 * 30


def test_after_the_last_step_of_a_run_without_validation_no_time_is_left(
    folder: RunFolder, clock: Clock
) -> None:
    reports = reporter(folder, plan=plan(steps=10))
    clock.now += 20
    reports.step(10, {})
    assert heartbeat(folder)["seconds_left"] == 0


def test_the_time_left_follows_the_recent_steps(folder: RunFolder, clock: Clock) -> None:
    reports = reporter(folder, plan=plan(steps=100, save_steps=100))
    for step in range(1, 21):
        clock.now += 50 if step <= 10 else 1
        reports.step(step, {})
    assert heartbeat(folder)["seconds_left"] == 80


def test_the_heartbeat_says_who_writes_it_and_how_far_it_is(
    folder: RunFolder, clock: Clock
) -> None:
    reports = reporter(folder, tokens_drawn=lambda: 77)
    clock.now += 1
    reports.step(2, {"loss": 0.5})
    written = heartbeat(folder)
    wanted = {"format": 1, "pid": os.getpid(), "tokens_drawn": 77, "step": 2, "steps": 10}
    assert wanted.items() <= written.items()
    assert written["metrics"]["loss"] == 0.5


def test_progress_begins_with_the_plan_and_its_notes_and_grows(
    folder: RunFolder, clock: Clock
) -> None:
    settings = TrainSettings(max_steps=2, per_device_train_batch_size=5)
    changed = resolve_batches(settings, training_cases=100)
    assert changed.notes
    seen: list[list[str]] = []
    reports = reporter(
        folder, plan=changed, on_progress=lambda each: seen.append([*each["messages"]])
    )
    reports.say("a warning")
    assert seen == [[f"run run: {changed}", *changed.notes, "a warning"]]


def test_a_run_that_resumes_counts_from_its_step(folder: RunFolder, clock: Clock) -> None:
    shown: list[int] = []
    trackers = Noted()
    reports = reporter(
        folder, trackers=trackers, on_progress=lambda each: shown.append(each["step"])
    )
    clock.now += 500  # loading the model is not part of a step
    reports.begin(6)
    try:
        clock.now += 3
        reports.step(7, {})
    finally:
        reports.end()
    assert shown == [6, 7]
    assert metrics(folder)[0]["seconds"] == 3.0
    assert trackers.is_finished


def test_a_heartbeat_is_written_between_steps(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = threading.Event()
    calls: list[int] = []

    def drawn() -> int:
        calls.append(1)
        if len(calls) == 2:
            twice.set()
        return len(calls)

    monkeypatch.setattr(reporting, "_HEARTBEAT_SECONDS", 0.01)
    reports = reporter(folder, tokens_drawn=drawn)
    reports.begin(0)
    try:
        assert twice.wait(10)
    finally:
        reports.end()
    assert heartbeat(folder)["tokens_drawn"] == len(calls)


def test_the_last_heartbeat_is_written_at_the_end_also_of_a_run_that_never_began(
    folder: RunFolder,
) -> None:
    trackers = Noted()
    reporter(folder, trackers=trackers).end()
    assert heartbeat(folder)["step"] == 0
    assert trackers.is_finished
