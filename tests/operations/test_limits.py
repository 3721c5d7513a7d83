"""Limits that a person set hold for operators: also for what was started before, and on the way
from a check to a proof."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace

import pytest

from sparring.contracts.errors import (
    ConfigError,
    InvalidInput,
    LockedConfig,
    LockedField,
    NotPermitted,
    OverBudget,
    PlanRefused,
    RunNotFound,
    SettingError,
    SparringError,
)
from sparring.operations import operation as log
from sparring.operations.activity_log import ActivityLog
from sparring.operations.checking import StartCheck, start_check
from sparring.operations.environments import EnvironmentQuery, show_environment
from sparring.operations.operation import Caller, NoArguments, Role
from sparring.operations.permissions import show_limits
from sparring.operations.plans import planning
from sparring.operations.plans.planning import PlanQuery, PlanRun, plan_run, start_planned
from sparring.operations.proving import StartProof, start_proof
from sparring.operations.resolution import resolve_run
from sparring.operations.run_control import ResumeRun, resume_run, stop_run
from sparring.operations.run_views import ListRuns, RunQuery
from sparring.operations.runs import list_runs, show_run
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import MANIFEST
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import write_json
from sparring.runs.history import read_history
from sparring.runs.lifecycle import RunState
from tests.operations.made import edit_project, make_project, operator_of, spec_of

DONE = (RunState.STARTING, RunState.RUNNING, RunState.COMPLETED)
LOCK = '[[lock]]\nfield = "temperature"\nvalue = 0.2\n[budget]'


@pytest.fixture
def owner(tmp_path, monkeypatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner) -> Caller:
    return operator_of(owner)


def planned(caller: Caller, **given) -> str:
    plan = plan_run(PlanRun(environment="shop", **given), caller).plan
    return start_planned(PlanQuery(plan=plan), caller).run


def ended(caller: Caller, run: str, *states: RunState) -> RunFolder:
    folder = RunFolder(caller.runs / run)
    for state in states or (RunState.STOPPED,):
        append_state(folder, state, author="supervisor", epoch=1)
    return folder


@pytest.mark.parametrize("kind", ["a default", "its own", "of an evaluation", "of a check"])
def test_a_lock_set_after_the_start_applies_on_resume(operator, kind):
    if kind == "of a check":
        request = StartCheck(environment="shop", cases=2, rollouts=2, settings={"temperature": 0.9})
        run = start_check(request, operator).run
    elif kind == "of an evaluation":
        run = planned(operator, kind="eval", cases=2)
    else:
        run = planned(operator, settings={"temperature": 0.9} if kind == "its own" else {})
    ended(operator, run)
    edit_project(operator, "[budget]", LOCK)
    with pytest.raises(LockedField, match="temperature is locked"):
        resume_run(ResumeRun(run=run), operator)


@pytest.mark.parametrize("kind", ["train", "eval", "check"])
def test_a_run_resumes_if_no_lock_was_added(operator, kind):
    if kind == "check":
        run = start_check(StartCheck(environment="shop", cases=2, rollouts=2), operator).run
    else:
        run = planned(operator, kind=kind, **({"cases": 2} if kind == "eval" else {}))
    ended(operator, run)
    assert resume_run(ResumeRun(run=run), operator).is_new


def test_a_field_that_was_free_and_set_to_null_is_locked_again(operator):
    edit_project(operator, '"max_steps"', '"max_steps", "validation_cases"')
    edit_project(
        operator, "[budget]", "[environment.shop.settings]\nvalidation_cases = 4\n[budget]"
    )
    run = planned(operator, settings={"validation_cases": None})
    ended(operator, run)
    edit_project(operator, ', "validation_cases"', "")
    with pytest.raises(LockedField, match="validation_cases"):
        resume_run(ResumeRun(run=run), operator)


@pytest.mark.parametrize("kind", ["train", "eval", "check"])
def test_a_budget_lowered_after_the_start_applies_on_resume(operator, kind):
    if kind == "check":
        run = start_check(StartCheck(environment="shop", cases=4, rollouts=16), operator).run
    else:
        run = planned(operator, kind=kind, **({"cases": 100} if kind == "eval" else {}))
    ended(operator, run)
    edit_project(operator, "rollouts = 3000", "rollouts = 50")
    with pytest.raises(OverBudget, match="this one could play"):
        resume_run(ResumeRun(run=run), operator)


def test_a_proof_is_held_to_the_locks_and_hours_of_today(owner, operator):
    settings = {"temperature": 1.9, "unsandboxed": True, "validation_cases": 0}
    run = start_train(StartTrain(environment="shop", settings=settings, prove=False), owner).run
    folder = ended(owner, run, *DONE)
    write_json(folder.checkpoints / "step-5" / MANIFEST, {"format": 1, "step": 5})
    with pytest.raises(LockedField, match="unsandboxed"):
        start_proof(StartProof(run=run, cases=2), operator)
    edit_project(owner, "steps = 50", "steps = 50\nhours = 2")
    assert spec_of(owner, start_proof(StartProof(run=run, cases=2), owner).run)["hours"] == 2


def test_a_proof_that_waits_again_has_its_hours(operator):
    edit_project(operator, "steps = 50", "steps = 50\nhours = 2")
    run = planned(operator)
    proof = RunFolder(operator.runs / f"proof-{run}")
    ended(operator, run)
    append_state(proof, RunState.STOPPED, author="sparring")
    resume_run(ResumeRun(run=run), operator)
    history = read_history(proof).history
    assert (history.state, history.hours) == (RunState.QUEUED, 2)


def test_a_plan_notices_a_change_from_1_to_true(operator):
    config = "[environment.shop.config]\nsize = 1\n"
    edit_project(operator, "[budget]", f"{config}[budget]")
    plan = plan_run(PlanRun(environment="shop"), operator).plan
    edit_project(operator, "size = 1", "size = true")
    with pytest.raises(SparringError):
        start_planned(PlanQuery(plan=plan), operator)


def test_a_plan_that_is_forgotten_does_not_start_again(operator, monkeypatch):
    """Slowly by one, meanwhile by another, and then there are many new ones."""
    from sparring.operations.plans import store as kept

    monkeypatch.setattr(kept, "_MAX_PLANS", 2)
    plan = plan_run(PlanRun(environment="shop"), operator).plan
    gate, reached = threading.Event(), threading.Event()
    real = planning.missing_for
    outcome: list[str] = []

    def slowly(run_settings):
        if threading.current_thread().name == "slow":
            reached.set()
            gate.wait(20)
        return real(run_settings)

    def start() -> None:
        try:
            outcome.append(start_planned(PlanQuery(plan=plan), operator).run)
        except PlanRefused:
            outcome.append("refused")

    monkeypatch.setattr(planning, "missing_for", slowly)
    slow = threading.Thread(target=start, name="slow")
    slow.start()
    assert reached.wait(20)
    start()
    for seed in range(4):
        plan_run(PlanRun(environment="shop", settings={"seed": seed}), operator)
    gate.set()
    slow.join()
    assert outcome[0].startswith("shop-")
    assert outcome[1] == "refused"


@pytest.mark.parametrize("name", ["owner", "sparring", "supervisor", "", "x y", "../x", "a" * 500])
def test_an_operator_may_not_be_named_owner(owner, name):
    with pytest.raises(InvalidInput, match="cannot be the name of an operator"):
        Caller(Role.OPERATOR, owner.runs, name, owner.folder)


def test_an_operator_cannot_resume_a_run_that_the_owner_stopped(owner, operator):
    run = planned(operator)
    stop_run(RunQuery(run=run), owner)
    with pytest.raises(NotPermitted, match="was stopped by owner"):
        resume_run(ResumeRun(run=run), operator)
    assert resume_run(ResumeRun(run=run), owner).run == run


def test_a_run_that_was_stopped_for_its_hours_is_resumed_by_its_operator(operator):
    run = planned(operator)
    append_event(RunFolder(operator.runs / run), "stop_requested", author="supervisor")
    ended(operator, run)
    assert resume_run(ResumeRun(run=run), operator).is_new


def test_resuming_a_completed_run_is_no_start(operator):
    run = planned(operator)
    ended(operator, run, *DONE)
    before = show_limits(NoArguments(), operator).starts_today
    assert not resume_run(ResumeRun(run=run), operator).is_new
    assert show_limits(NoArguments(), operator).starts_today == before == 1


def test_a_clock_that_was_wrong_for_a_while_forgets_no_start(operator, monkeypatch):
    planned(operator)
    chain = ActivityLog(operator.runs)
    now = time.time()
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now - 100_000)
        with pytest.raises(RunNotFound):
            stop_run(RunQuery(run="gone"), operator)
    assert chain.starts_today() == 1


def test_files_outside_of_the_project_are_not_an_operators(operator, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "stock.txt"
    outside.write_text("theirs")
    edit_project(operator, '"max_steps"', '"max_steps", "config.stock", "warm_start"')
    for settings in (
        {"config": {"stock": str(outside)}},
        {"config": {"stock": "../x"}},
        {"warm_start": "/etc/passwd"},
    ):
        with pytest.raises(NotPermitted, match="outside of the project"):
            plan_run(PlanRun(environment="shop", settings=settings), operator)
    inside = {"config": {"stock": str(operator.folder / "stock.txt")}}
    assert plan_run(PlanRun(environment="shop", settings=inside), operator).ready


def test_fields_of_a_config_are_the_owners_unless_it_leaves_them_to_operators(operator):
    shop = operator.folder / "shop.py"
    field = 'data: str = "questions.jsonl"'
    shop.write_text(shop.read_text().replace("size: int = 2", f"size: int = 2\n        {field}"))
    with pytest.raises(LockedConfig, match=r"config\.data"):
        plan_run(PlanRun(environment="shop", settings={"config": {"data": "other"}}), operator)
    edit_project(operator, '"max_steps"', '"max_steps", "config.data"')
    with pytest.raises(NotPermitted, match="outside of the project"):
        plan_run(PlanRun(environment="shop", settings={"config": {"data": "/etc/hosts"}}), operator)


@pytest.mark.parametrize("name", ["Owner", "OWNER", "own\u0435r", "Sparring", "Worker"])
def test_a_name_that_looks_like_the_owners_is_refused(operator, name):
    with pytest.raises(InvalidInput, match="cannot be the name"):
        replace(operator, name=name)


def test_further_refusals_of_a_caller_are_counted_and_not_logged(operator, monkeypatch):
    monkeypatch.setattr(log, "_MAX_REFUSALS_LOGGED", 6)
    quiet = replace(operator, name="flooder")
    for _ in range(20):
        with pytest.raises(RunNotFound):
            show_run(RunQuery(run="nothing"), quiet)
    entries = [each for each in ActivityLog(operator.runs).backwards() if each["who"] == "flooder"]
    assert len(entries) == 6


def test_folders_elsewhere_are_no_pages_of_runs(operator):
    planned(operator)
    for after in ("../../../etc", "/etc", "..", "x" * 5000):
        with pytest.raises(RunNotFound):
            list_runs(ListRuns(after=after), operator)


def test_a_lock_on_trainings_does_not_keep_from_evaluating(operator):
    edit_project(operator, "[budget]", '[[lock]]\nfield = "learning_rate"\n[budget]')
    assert plan_run(PlanRun(environment="shop", kind="eval", cases=2), operator).ready


def test_an_environment_that_wants_a_field_can_be_described_before_it_is_set(operator):
    shop = operator.folder / "shop.py"
    shop.write_text(shop.read_text().replace("size: int = 2", "size: int"))
    shown = show_environment(EnvironmentQuery(environment="shop"), operator)
    assert "size" in {each.name for each in shown.description.fields}
    with pytest.raises(SparringError, match=r"config\.size: the environment requires it"):
        resolve_run("shop", "train", {}, operator)


def test_a_pattern_takes_no_time_that_explodes(operator):
    shop = operator.folder / "shop.py"
    tag = 'tag: str = Field(default="a", pattern="^(a+)+$")'
    text = shop.read_text().replace("size: int = 2", f"size: int = 2\n        {tag}")
    shop.write_text(f"from pydantic import Field\n{text}")
    edit_project(operator, '"max_steps"', '"max_steps", "config.tag"')
    resolve_run("shop", "train", {"config": {"tag": "aaa"}}, operator)
    began = time.monotonic()
    with pytest.raises(ConfigError, match="does not match"):
        resolve_run("shop", "train", {"config": {"tag": "a" * 40 + "!"}}, operator)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("value", ["evil", ["a"], None, 5])
def test_a_config_that_is_no_table_is_refused_without_words_of_the_environment(operator, value):
    with pytest.raises((LockedConfig, ConfigError, SettingError, InvalidInput)) as refused:
        plan_run(PlanRun(environment="shop", settings={"config": value}), operator)
    assert not isinstance(refused.value, LockedField) or isinstance(refused.value, LockedConfig)


def test_a_home_folder_is_outside_of_the_project(operator):
    edit_project(operator, '"max_steps"', '"max_steps", "model", "warm_start"')
    unknown = {"model": "~nobody-here/evil"}
    for settings in ({"model": "~/evil"}, {"warm_start": "~/.ssh"}, unknown):
        with pytest.raises(NotPermitted, match="outside of the project"):
            plan_run(PlanRun(environment="shop", settings=settings), operator)


@pytest.mark.parametrize("matching", [1, 2])
def test_the_end_of_a_run_s_id_does_not_lead_out_of_the_project(
    operator, tmp_path_factory, matching
):
    edit_project(operator, '"max_steps"', '"max_steps", "model"')
    others = tmp_path_factory.mktemp("others")
    for number in range(matching):
        run = others / f"secret-2026111{number}-184334-8542"
        run.mkdir()
        (run / "spec.json").write_text('{"kind": "train"}')
    runs = operator.folder / "runs"
    runs.mkdir(exist_ok=True)
    (operator.folder / "linked").symlink_to(others)
    upwards = os.path.relpath(others, runs)
    for model in (f"runs/{upwards}/8542", "linked/8542"):
        with pytest.raises(NotPermitted, match="outside of the project") as refused:
            plan_run(PlanRun(environment="shop", settings={"model": model}), operator)
        assert "secret" not in str(refused.value)
