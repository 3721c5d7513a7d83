"""A plan says what a run would be, and starts exactly that, once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sparring.contracts.errors import (
    InvalidInput,
    LockedField,
    NotPermitted,
    OverBudget,
    PlanRefused,
    SettingError,
    SparringError,
)
from sparring.operations.operation import Caller
from sparring.operations.plans import planning
from sparring.operations.plans.planning import (
    ListPlans,
    Plan,
    PlanQuery,
    PlanRun,
    RefusePlan,
    RevisePlan,
    list_plans,
    plan_run,
    refuse_plan,
    revise_plan,
    show_plan,
    start_planned,
)
from sparring.operations.run_control import ResumeRun, resume_run
from sparring.operations.starting import Started
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.runs.lifecycle import RunState
from tests.operations.handmade import agent_in, make_free_project, owner_of
from tests.operations.made import edit_project, make_project, operator_of, spec_of


@pytest.fixture
def owner(tmp_path, monkeypatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner) -> Caller:
    return operator_of(owner)


def planned(caller: Caller, **given) -> Plan:
    return plan_run(PlanRun(environment="shop", **given), caller)


def started(plan: Plan, caller: Caller) -> Started:
    return start_planned(PlanQuery(plan=plan.plan), caller)


def test_a_plan_says_what_would_be_and_starts_nothing(operator):
    plan = planned(operator, settings={"temperature": 0.9})
    assert plan.ready
    assert plan.settings["temperature"] == 0.9
    assert plan.settings["max_steps"] == 5
    assert plan.cost.steps == 5
    assert plan.cost.rollouts == 5 * 4 * 4
    assert plan.cost.rollouts_at_most == 5 * 2 * 4 * 4 + 64 * 2
    assert "temperature" in plan.may_change
    assert "learning_rate" not in plan.may_change
    assert "beta" not in plan.may_change
    assert not [each for each in operator.runs.iterdir() if each.name != ".sparring"]


def test_a_plan_starts_a_run_with_exactly_its_settings(operator):
    plan = planned(operator, settings={"temperature": 0.9, "max_steps": 7})
    run = started(plan, operator)
    spec = spec_of(operator, run.run)
    assert spec["settings"]["temperature"] == 0.9
    assert spec["settings"]["max_steps"] == 7
    assert spec["plan"] == plan.plan
    assert spec_of(operator, run.proof)["after"] == run.run


def test_a_plan_of_an_evaluation_plays_validation_cases(operator):
    run = started(planned(operator, kind="eval", cases=3), operator)
    spec = spec_of(operator, run.run)
    assert (spec["kind"], spec["split"], spec["cases"]) == ("eval", "validation", 3)
    assert run.proof == ""


def test_a_plan_starts_once_however_many_ask(operator):
    plan = planned(operator)
    outcomes: list[str] = []

    def ask() -> None:
        try:
            outcomes.append(started(plan, operator).run)
        except SparringError as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(outcomes)[:4] == ["PlanRefused"] * 4
    run = next(each for each in outcomes if each.startswith("shop-"))
    with pytest.raises(PlanRefused, match=f"as run {run}"):
        started(plan, operator)


def test_a_plan_without_its_proof(operator):
    assert started(planned(operator, prove=False), operator).proof == ""


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("source", "file .*shop.py"),
        ("an imported module", "file .*prices.py"),
        ("data beside the environment", "file .*cases.jsonl"),
        ("a file of its config", "stock.txt"),
        ("a setting of the project", "temperature"),
        ("the budget", "budget.hours"),
    ],
)
def test_a_plan_is_refused_after_any_change(operator, what, reason):
    edit_project(
        operator, "[settings]", "[environment.shop.config]\nstock = 'stock.txt'\n[settings]"
    )
    plan = planned(operator)
    folder = operator.folder
    if what == "source":
        (folder / "shop.py").write_text((folder / "shop.py").read_text() + "# more\n")
    elif what == "an imported module":
        (folder / "prices.py").write_text("APPLE = 2\n")
    elif what == "data beside the environment":
        (folder / "cases.jsonl").write_text('{"input": "other"}\n')
    elif what == "a file of its config":
        (folder / "stock.txt").write_text("pears and apples\n")
    elif what == "a setting of the project":
        edit_project(operator, "[settings]", "[settings]\ntemperature = 0.7")
    else:
        edit_project(operator, "steps = 50", "steps = 50\nhours = 2")
    with pytest.raises(PlanRefused, match=f"(?s)is out of date.*({reason})"):
        started(plan, operator)


def test_a_lock_that_was_set_since_is_refused_as_such(operator):
    plan = planned(operator, settings={"temperature": 0.9})
    edit_project(operator, "[budget]", '[[lock]]\nfield = "temperature"\nvalue = 0.5\n[budget]')
    with pytest.raises(LockedField, match=r"temperature is locked to 0\.5"):
        started(plan, operator)


def test_a_plan_belongs_to_who_made_it(owner, operator):
    plan = planned(operator)
    for attempt in (
        lambda caller: started(plan, caller),
        lambda caller: revise_plan(RevisePlan(plan=plan.plan, field="seed", value=1), caller),
    ):
        with pytest.raises(NotPermitted, match="is coach's"):
            attempt(operator_of(owner, "other"))
    assert started(plan, owner).run


def test_a_revision_changes_one_field_and_leaves_the_first_plan(operator):
    first = planned(operator, settings={"temperature": 0.9})
    second = revise_plan(RevisePlan(plan=first.plan, field="config.size", value=3), operator)
    assert second.revises == first.plan
    assert second.settings["config.size"] == 3
    assert second.settings["temperature"] == 0.9
    third = revise_plan(RevisePlan(plan=second.plan, field="prove", value=False), operator)
    assert not third.proves
    assert spec_of(operator, started(first, operator).run)["config"] == {}


def test_a_wrong_field_is_answered_with_those_that_may_be_changed(operator):
    plan = planned(operator)
    with pytest.raises(
        SettingError,
        match=r"has no field 'temprature'; did you mean temperature\? you may change .*beta|seed",
    ):
        revise_plan(RevisePlan(plan=plan.plan, field="temprature", value=1), operator)
    with pytest.raises(LockedField):
        revise_plan(RevisePlan(plan=plan.plan, field="lora.r", value=4), operator)
    with pytest.raises(OverBudget, match="at most 50 steps"):
        revise_plan(RevisePlan(plan=plan.plan, field="max_steps", value=51), operator)
    with pytest.raises(SparringError):
        revise_plan(RevisePlan(plan=plan.plan, field="cases", value=3), operator)


def test_a_run_like_another_takes_its_settings_over(operator):
    run = started(planned(operator, settings={"temperature": 0.9, "seed": 3}), operator).run
    plan = plan_run(PlanRun(like=run, settings={"seed": 4}), operator)
    assert (plan.environment, plan.settings["temperature"], plan.settings["seed"]) == (
        "shop",
        0.9,
        4,
    )
    with pytest.raises(LockedField):
        plan_run(PlanRun(like=run, settings={"learning_rate": 1.0}), operator)
    with pytest.raises(InvalidInput, match="name an environment"):
        plan_run(PlanRun(), operator)


def test_a_planned_run_resumes_only_within_todays_budget_and_locks(operator):
    run = started(planned(operator, settings={"temperature": 0.9, "max_steps": 40}), operator).run
    append_state(RunFolder(operator.runs / run), RunState.STOPPED, author="test")
    edit_project(operator, "steps = 50", "steps = 30")
    with pytest.raises(OverBudget):
        resume_run(ResumeRun(run=run), operator)
    edit_project(operator, "steps = 30", "steps = 50")
    edit_project(operator, "[budget]", '[[lock]]\nfield = "temperature"\nvalue = 0.5\n[budget]')
    with pytest.raises(LockedField):
        resume_run(ResumeRun(run=run), operator)
    edit_project(operator, '[[lock]]\nfield = "temperature"\nvalue = 0.5\n', "")
    edit_project(operator, '"max_steps"', '"lora"')
    with pytest.raises(LockedField, match="max_steps"):
        resume_run(ResumeRun(run=run), operator)
    edit_project(operator, '"lora"', '"max_steps"')
    assert resume_run(ResumeRun(run=run), operator).run == run


def test_a_start_that_was_killed_between_plan_and_run_is_refused_clearly(operator, monkeypatch):
    plan = planned(operator)

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(planning, "begin_training", die)
        with pytest.raises(KeyboardInterrupt):
            started(plan, operator)
    with pytest.raises(PlanRefused, match="died before the run was created"):
        started(plan, operator)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_free_project(tmp_path, monkeypatch)
    return tmp_path


def test_plans_are_listed_shown_and_refused(folder: Path) -> None:
    agent, owner = agent_in(folder), owner_of(folder)
    plan = plan_run(PlanRun(environment="shop"), agent)
    (line,) = list_plans(ListPlans(), owner).plans
    assert (line.plan, line.author, line.environment) == (plan.plan, "agent", "shop")
    shown = show_plan(PlanQuery(plan=plan.plan), owner)
    assert shown.cost == plan.cost
    assert shown.settings == plan.settings
    refused = refuse_plan(RefusePlan(plan=plan.plan, reason="too long"), owner)
    assert refused.is_refused
    with pytest.raises(PlanRefused, match=r"the owner refused plan .*: too long"):
        start_planned(PlanQuery(plan=plan.plan), agent)
    with pytest.raises(NotPermitted):
        refuse_plan(RefusePlan(plan=plan.plan), agent)


def test_an_operator_sees_its_own_plans_only(folder: Path) -> None:
    plan_run(PlanRun(environment="shop"), owner_of(folder))
    assert list_plans(ListPlans(), agent_in(folder)).plans == ()
