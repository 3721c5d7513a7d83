"""The cost of a run is its size, and its time where a run like it was completed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.kinds import CheckSpec
from sparring.contracts.specs import EvalSpec, PlaySettings, PolicySpec
from sparring.contracts.summaries import CheckSummary
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.operation import Caller
from sparring.operations.plans.estimating import Done, completed_before, cost_of, expected_hours
from sparring.operations.plans.planning import Plan, PlanQuery, PlanRun, plan_run, start_planned
from sparring.operations.resolution import resolve_run
from sparring.operations.starting import Started
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import append_line, write_json
from sparring.runs.lifecycle import RunState
from tests.operations.made import make_project, operator_of
from tests.summaries import completed

TARGET: dict[str, Any] = {"target": "shop.py:Shop", "environment": "shop"}
SETTINGS = TrainSettings(max_steps=10)
PER_STEP = SETTINGS.rollouts_per_step(1)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


def planned(caller: Caller, **given: Any) -> Plan:
    return plan_run(PlanRun(environment="shop", **given), caller)


def started(plan: Plan, caller: Caller) -> Started:
    return start_planned(PlanQuery(plan=plan.plan), caller)


def checked(folder: Path, seconds_per_step: Any) -> Done:
    run = RunFolder(folder / "check-shop-1")
    run.create(CheckSpec(**TARGET, settings=SETTINGS).model_dump(mode="json"))
    is_number = isinstance(seconds_per_step, float)
    hours = seconds_per_step * 10 / 3600 if is_number else seconds_per_step
    estimate = {"estimate": {"hours": {"value": hours}, "steps": 10}}
    write_json(run.summary, completed(CheckSummary, estimate))
    return Done("check", run)


def trained(folder: Path, *seconds: float) -> Done:
    run = RunFolder(folder / "shop-1")
    run.create(TrainSpec(**TARGET, settings=SETTINGS).model_dump(mode="json"))
    for step, each in enumerate(seconds, 1):
        append_line(run.metrics, {"attempt": 1, "step": step, "loss": 0.1, "seconds": each})
    return Done("train", run)


def test_an_evaluation_costs_its_cases_times_its_rollouts() -> None:
    spec = EvalSpec(**TARGET, cases=5, play=PlaySettings(num_generations=3))
    assert (cost_of(spec, []).rollouts, cost_of(spec, []).hours) == (15, None)


def test_a_training_without_a_length_has_no_size() -> None:
    cost = cost_of(TrainSpec(**TARGET, settings=TrainSettings(max_steps=None)), [])
    assert (cost.steps, cost.rollouts, cost.hours) == (None, None, None)
    assert "num_train_epochs" in cost.basis


def test_without_a_completed_run_the_size_is_known_and_the_time_is_not() -> None:
    cost = cost_of(TrainSpec(**TARGET, settings=SETTINGS), [])
    assert (cost.steps, cost.rollouts, cost.hours) == (10, 10 * PER_STEP, None)
    assert cost.rollouts_at_most is not None
    assert cost.rollouts_at_most >= 10 * PER_STEP
    assert "the time is unknown" in cost.basis


def test_a_check_is_believed_before_a_training(tmp_path: Path) -> None:
    spec = TrainSpec(**TARGET, settings=SETTINGS)
    before = [trained(tmp_path, 36.0, 108.0), checked(tmp_path, 360.0)]
    cost = cost_of(spec, before)
    assert cost.hours == pytest.approx(1.0)
    assert cost.basis.startswith("check-shop-1 took")
    assert cost_of(spec, before[:1]).hours == pytest.approx(0.2)


@pytest.mark.parametrize("value", [None, "soon"])
def test_a_run_whose_figures_cannot_be_used_is_passed_over(tmp_path: Path, value: Any) -> None:
    before = [checked(tmp_path, value), trained(tmp_path, 36.0)]
    cost = cost_of(TrainSpec(**TARGET, settings=SETTINGS), before)
    assert cost.hours == pytest.approx(0.1)
    empty = [checked(tmp_path / "a", value), trained(tmp_path / "b")]
    assert cost_of(TrainSpec(**TARGET, settings=SETTINGS), empty).hours is None


def test_only_completed_runs_of_the_same_model_are_a_basis(owner: Caller) -> None:
    run_settings = resolve_run("shop", "train", {}, owner)
    assert completed_before(run_settings, owner) == []
    for name, model, states in (
        ("shop-1", "tiny", (RunState.COMPLETED,)),
        ("shop-2", "tiny", ()),
        ("shop-3", "another", (RunState.COMPLETED,)),
    ):
        folder = RunFolder(owner.runs / name)
        spec = TrainSpec(**TARGET, settings=SETTINGS, policy={"model": model})
        folder.create(spec.model_dump(mode="json"))
        for state in (RunState.QUEUED, RunState.STARTING, RunState.RUNNING, *states):
            append_state(folder, state, author="test")
    found = completed_before(run_settings, owner)
    assert [(each.kind, each.folder.id) for each in found] == [("train", "shop-1")]


def test_a_plan_that_leaves_the_model_to_the_agent_takes_the_time_of_its_check(
    owner: Caller,
) -> None:
    (owner.folder / "sparring.toml").write_text("[settings]\nmax_steps = 10\n")
    done = checked(owner.runs, 360.0).folder
    append_event(done, "inputs", author="worker", model="smollm2")
    for state in (RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.COMPLETED):
        append_state(done, state, author="test")
    cost = planned(owner).cost
    assert cost.hours == pytest.approx(1.0)
    assert cost.basis.startswith(f"{done.id} took")
    assert planned(owner, settings={"model": "smollm2"}).cost.hours == pytest.approx(1.0)
    assert planned(owner, settings={"model": "tiny"}).cost.hours is None


def test_without_max_steps_the_time_is_that_of_a_check_of_the_same_plan(tmp_path: Path) -> None:
    plan = TrainSettings(max_steps=None)
    done = checked(tmp_path, 360.0)
    spec = done.folder.read_spec()
    write_json(done.folder.spec, {**spec, "settings": plan.model_dump(mode="json")})
    cost = cost_of(TrainSpec(**TARGET, settings=plan), [done])
    assert (cost.hours, cost.steps) == (pytest.approx(1.0), None)
    assert "check-shop-1 expects 10 steps" in cost.basis
    longer = plan.model_copy(update={"num_train_epochs": 2.0})
    assert cost_of(TrainSpec(**TARGET, settings=longer), [done]).hours is None


def test_the_time_is_estimated_from_the_newest_check_or_training(operator: Caller) -> None:
    run = started(planned(operator), operator).run
    folder = RunFolder(operator.runs / run)
    rows = [{"step": step, "loss": 0.1, "seconds": 36.0} for step in (1, 2, 3)]
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    append_state(folder, RunState.STARTING, author="test")
    append_state(folder, RunState.RUNNING, author="test")
    append_state(folder, RunState.COMPLETED, author="test")
    cost = planned(operator, settings={"max_steps": 50, "num_generations": 2}).cost
    assert cost.hours == pytest.approx(0.25)  # half the rollouts of a step, for fifty steps
    assert run in cost.basis


@pytest.mark.parametrize(
    ("steps", "model", "hours"), [(10, None, 0.15), (20, None, None), (10, "other", None)]
)
def test_a_training_is_expected_to_take_what_a_check_of_the_same_plan_estimated(
    owner: Caller, steps: int, model: str | None, hours: float | None
) -> None:
    run = RunFolder(owner.runs / "check-shop-1")
    run.create(CheckSpec(**TARGET, settings=SETTINGS).model_dump(mode="json"))
    estimate = {"steps": 10, "hours": {"value": 0.15, "low": 0.1, "high": 0.2}}
    write_json(run.summary, completed(CheckSummary, {"estimate": estimate}))
    for state in (RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.COMPLETED):
        append_state(run, state, author="supervisor", epoch=1)
    settings = SETTINGS.model_copy(update={"max_steps": steps})
    spec = TrainSpec(**TARGET, settings=settings, policy=PolicySpec(model=model))
    assert expected_hours(spec, owner) == hours
