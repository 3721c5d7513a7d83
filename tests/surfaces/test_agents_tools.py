"""The tools of an operator, for agents of the SDK in the same process."""

from __future__ import annotations

import asyncio
import json

import pytest

from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller, Role
from sparring.surfaces.agents_tools import operator_tools
from sparring.surfaces.tools.catalogue import tools_for
from tests.operations.made import make_project


@pytest.fixture
def owner(tmp_path, monkeypatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


def test_the_agents_sdk_gets_the_same_tools(owner):
    tools = {each.name: each for each in operator_tools(owner.folder, "coach")}
    assert set(tools) == set(tools_for(Role.OPERATOR))
    output = asyncio.run(tools["list_environments"].on_invoke_tool(None, "{}"))  # type: ignore[arg-type]
    assert json.loads(output)["environments"][0]["name"] == "shop"
    wrong = asyncio.run(tools["plan_run"].on_invoke_tool(None, "no json"))  # type: ignore[arg-type]
    assert json.loads(wrong)["error"]["type"] == "InvalidInput"


def test_arguments_that_are_no_object_are_refused_as_invalid(owner: Caller) -> None:
    tools = {each.name: each for each in operator_tools(owner.folder, "coach")}
    for arguments in ("[1]", "7", '"x"'):
        output = asyncio.run(tools["show_run"].on_invoke_tool(None, arguments))  # type: ignore[arg-type]
        assert json.loads(output)["error"]["type"] == "InvalidInput"
    output = asyncio.run(tools["list_runs"].on_invoke_tool(None, ""))  # type: ignore[arg-type]
    assert json.loads(output)["runs"] == []


def test_the_activity_log_names_the_operator(owner: Caller) -> None:
    (tool,) = [each for each in operator_tools(owner.folder, "coach") if each.name == "plan_run"]
    asyncio.run(tool.on_invoke_tool(None, "no json"))  # type: ignore[arg-type]
    (entry,) = ActivityLog(owner.runs).backwards()
    assert (entry["who"], entry["outcome"]) == ("coach", "refused")
