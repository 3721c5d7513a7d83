"""Everybody is shown its own limits: role, budget, what is left of it, and locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.operations.operation import Caller, NoArguments, Role
from sparring.operations.permissions import Limits, show_limits
from sparring.operations.run_views import ListRuns
from sparring.operations.runs import list_runs
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.runs.lifecycle import RunState
from tests.operations.made import edit_project, make_project, operator_of


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


def limits(caller: Caller) -> Limits:
    return show_limits(NoArguments(), caller)


def test_everybody_may_see_who_it_is(owner: Caller, operator: Caller) -> None:
    viewer = Caller(Role.VIEWER, owner.runs, "guest", folder=owner.folder)
    seen = [(each.name, each.role) for each in map(limits, (viewer, operator, owner))]
    assert seen == [("guest", "viewer"), ("coach", "operator"), ("owner", "owner")]


def test_starts_of_all_operators_are_taken_from_one_budget(owner: Caller, operator: Caller) -> None:
    assert (limits(operator).starts_today, limits(operator).starts_left) == (0, 5)
    for caller in (operator, operator_of(owner, "other")):
        start_train(StartTrain(environment="shop", prove=False), caller)
    assert (limits(operator).starts_today, limits(operator).starts_left) == (2, 3)
    edit_project(owner, "starts_per_day = 5", "starts_per_day = 1")
    assert limits(operator).starts_left == 0


def test_the_owners_starts_are_not_limited(owner: Caller) -> None:
    start_train(StartTrain(environment="shop", prove=False), owner)
    assert (limits(owner).starts_today, limits(owner).starts_left) == (0, None)


def test_a_run_that_waits_is_not_counted_as_running(owner: Caller) -> None:
    assert limits(owner).runs_on == 0
    run = start_train(StartTrain(environment="shop", prove=False), owner).run
    assert limits(owner).runs_on == 0
    append_state(RunFolder(owner.runs / run), RunState.STARTING, author="supervisor", epoch=1)
    list_runs(ListRuns(), owner)  # reads the folders anew
    assert limits(owner).runs_on == 1


def test_locks_are_shown_as_the_project_file_has_them(operator: Caller) -> None:
    edit_project(operator, "value = 0.5", 'value = 0.5\nauthor = "Kim"\nreason = "it diverged"')
    (lock,) = limits(operator).locks
    assert (lock.field, lock.value, lock.author, lock.reason) == ("beta", 0.5, "Kim", "it diverged")


def test_fields_that_the_owner_frees_are_not_locked_for_operators(operator: Caller) -> None:
    shown = limits(operator)
    assert shown.freed_by_owner == ("max_steps", "config.size")
    assert "max_steps" not in shown.locked_for_operators
    assert {"model", "learning_rate"} <= set(shown.locked_for_operators)
    assert "for each environment, what you may change" in shown.note


def test_an_operator_has_limits_where_the_project_sets_none(
    owner: Caller, operator: Caller
) -> None:
    edit_project(owner, "starts_per_day = 5\n", "")
    assert limits(owner).budget.runs_at_once is None
    assert limits(operator).budget.runs_at_once is not None
    assert limits(operator).starts_left is not None
