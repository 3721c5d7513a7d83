"""Who did what is on record before it is done, and so is what was refused."""

from __future__ import annotations

import threading
import time

import pytest

from sparring.contracts.errors import (
    ActivityLogBusy,
    InvalidInput,
    NotPermitted,
    OverBudget,
    RunNotFound,
    SparringError,
)
from sparring.operations import operation as operations
from sparring.operations.activity import (
    VerifyActivity,
    verify_activity,
)
from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller, NoArguments, all_operations
from sparring.operations.permissions import show_limits
from sparring.operations.run_control import ResumeRun, resume_run, stop_run
from sparring.operations.run_views import RunQuery
from sparring.operations.runs import show_run
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.runs.lifecycle import RunState
from tests.operations.made import make_project, operator_of

TRAIN = StartTrain(environment="shop")


@pytest.fixture
def owner(tmp_path, monkeypatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner) -> Caller:
    return operator_of(owner)


def entries(caller: Caller) -> list[dict]:
    return list(ActivityLog(caller.runs).backwards())[::-1]


def test_a_start_is_on_record_before_and_after(operator):
    run = start_train(TRAIN, operator).run
    requests, done = entries(operator)
    assert (requests["outcome"], done["outcome"]) == ("requested", "done")
    assert requests["who"] == done["who"] == "coach"
    assert requests["request"] == {"environment": "shop"}
    assert requests["call"] == done["call"]
    assert done["result"]["run"] == run


def test_refusals_are_on_record_with_their_reason_also_of_looks(owner, operator):
    with pytest.raises(RunNotFound):
        show_run(RunQuery(run="../secret"), operator)
    with pytest.raises(InvalidInput):
        all_operations()["run.show"].ask({"run": "x", "extra": 1}, operator)
    with pytest.raises(SparringError):
        start_train(StartTrain(environment="shop", settings={"beta": 0.1}), operator)
    message = entries(operator)
    assert [each["outcome"] for each in message] == ["refused", "refused", "requested", "refused"]
    assert "secret" in message[0]["reason"]
    assert "there is no such argument; there are run" in message[1]["reason"]
    assert "LockedField: the command: beta is locked to 0.5" in message[3]["reason"]


def test_a_call_inside_another_operation_is_not_logged(operator):
    run = start_train(TRAIN, operator).run
    stop_run(RunQuery(run=run), operator)
    assert [each["verb"] for each in entries(operator)[2:]] == ["run.stop", "run.stop"]


def test_an_owners_mistake_in_a_folder_without_runs_leaves_nothing_behind(owner):
    with pytest.raises(SparringError):
        start_train(StartTrain(environment="nobody"), owner)
    assert not owner.runs.exists()
    start_train(TRAIN, owner)
    assert [(each["who"], each["outcome"]) for each in entries(owner)] == [("owner", "done")]


def test_an_operator_does_nothing_off_the_record_and_an_owner_can(owner, operator, monkeypatch):
    run = start_train(TRAIN, owner).run
    theirs = start_train(TRAIN, operator).run

    class Full:
        path = "audit.jsonl"

        def append(self, *_):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(operations, "ActivityLog", lambda _: Full())
    with pytest.raises(ActivityLogBusy, match="No space left"):
        stop_run(RunQuery(run=theirs), operator)
    assert show_run(RunQuery(run=theirs), owner).is_stopping_for == ""
    stop_run(RunQuery(run=run), owner)
    assert show_run(RunQuery(run=run), owner).state is RunState.STOPPED


def test_starts_of_a_day_are_counted_over_all_operators_and_refused_ones_are_not(owner, operator):
    other = operator_of(owner, "other")
    for caller in (operator, other, operator, other):
        start_train(TRAIN, caller)
    for _ in range(3):
        with pytest.raises(SparringError):
            start_train(StartTrain(environment="shop", settings={"beta": 0.1}), operator)
    start_train(TRAIN, owner)  # a person's own are their own affair
    assert show_limits(NoArguments(), operator).starts_left == 1
    start_train(TRAIN, operator)
    with pytest.raises(OverBudget, match="5 runs within 24 hours, and this project allows 5"):
        start_train(TRAIN, other)
    assert "OverBudget" in entries(operator)[-1]["reason"]
    start_train(TRAIN, owner)


def test_a_day_later_there_is_room_again(operator, monkeypatch):
    for _ in range(5):
        start_train(TRAIN, operator)
    chain = ActivityLog(operator.runs)
    assert chain.starts_today() == 5
    assert chain.starts_today(time.time() + 86_500) == 0


def test_a_resume_counts_as_a_start(operator):
    run = start_train(TRAIN, operator).run
    for _ in range(4):
        folder = RunFolder(operator.runs / run)
        append_state(folder, RunState.STOPPED, author="test")
        resume_run(ResumeRun(run=run), operator)
    append_state(RunFolder(operator.runs / run), RunState.STOPPED, author="test")
    with pytest.raises(OverBudget):
        resume_run(ResumeRun(run=run), operator)


def test_many_that_ask_at_once_get_no_more_than_there_is(owner, operator):
    outcomes: list[str] = []

    def ask() -> None:
        try:
            start_train(TRAIN, operator)
            outcomes.append("started")
        except OverBudget:
            outcomes.append("refused")

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(outcomes) == ["refused"] * 11 + ["started"] * 5
    assert verify_activity(VerifyActivity(), owner).ok


def test_an_operator_steers_its_own_runs_only(owner, operator):
    mine, other = start_train(TRAIN, owner).run, operator_of(owner, "other")
    theirs = start_train(TRAIN, operator).run
    for run, caller in ((mine, operator), (theirs, other)):
        with pytest.raises(NotPermitted, match="controls only its own runs"):
            stop_run(RunQuery(run=run), caller)
        append_state(RunFolder(owner.runs / run), RunState.STOPPED, author="test")
        with pytest.raises(NotPermitted, match="controls only its own runs"):
            resume_run(ResumeRun(run=run), caller)
    assert resume_run(ResumeRun(run=theirs), operator).run == theirs
    assert resume_run(ResumeRun(run=mine), owner).run == mine
