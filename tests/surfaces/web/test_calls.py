"""Arguments in a query string, statuses of errors, and which operations have a route."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, NotPermitted, RunNotFound, SparringError
from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller, Role, all_operations
from sparring.surfaces.web.calls import (
    call,
    pool_of,
    query_arguments,
    refuse_unknown,
    status_of,
    web_operations,
)


def test_repeated_names_are_lists_only_where_a_list_is_expected() -> None:
    listing = all_operations()["run.list"]
    pairs = [("states", "failed"), ("states", "queued"), ("count", "5")]
    assert query_arguments(listing, pairs) == {"states": ["failed", "queued"], "count": "5"}
    with pytest.raises(InvalidInput, match="occurs twice"):
        query_arguments(listing, [("count", "1"), ("count", "2")])


def test_errors_have_fitting_statuses() -> None:
    errors = (NotPermitted("x"), RunNotFound("x"), InvalidInput("x"), SparringError("x"))
    assert [status_of(error) for error in errors] == [403, 404, 400, 409]


def test_operations_on_the_servers_machine_have_no_route() -> None:
    assert not web_operations().keys() & {
        "env.new",
        "env.test",
        "run.join",
        "run.supervise",
        "chat.prepare",
    }
    for name, each in web_operations(Role.OPERATOR).items():
        assert each.forms.tool or not each.changes_state, name


def test_slow_calls_have_pools_of_their_own() -> None:
    assert {pool_of(name) for name in all_operations()} == {
        "quick",
        "waiting",
        "comparing",
        "environment",
    }


def test_operations_that_start_runs_have_a_pool_of_their_own() -> None:
    starting = {name for name, each in all_operations().items() if each.starts}
    assert len(starting) > 6
    assert {pool_of(name) for name in starting} == {"environment"}


def test_too_large_a_call_and_an_unknown_one_are_on_record(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    caller = Caller(Role.OPERATOR, runs, "agent", folder=tmp_path)
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"deep": deep}
    assert call(all_operations()["run.list"], deep, caller)[0] == 400
    assert refuse_unknown("run.own", caller)[0] == 404
    refused = [entry["verb"] for entry in ActivityLog(runs).backwards()]
    assert refused == ["http run.own", "run.list"]
