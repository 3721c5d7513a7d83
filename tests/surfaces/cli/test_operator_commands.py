"""`sparring mcp`, `limits`, `plan …` and `activity …` as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.operations.operation import Caller
from sparring.surfaces.cli import starting
from sparring.surfaces.tools.catalogue import tools_for
from tests.operations.made import make_project, operator_of, spec_of
from tests.surfaces.cli.terminal import Terminal


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def terminal(
    owner: Caller, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(owner.folder, monkeypatch, capsys)


def test_a_plan_is_made_revised_and_started_once(terminal: Terminal) -> None:
    made = terminal.type("plan", "make", "shop", "--no-prove", "--set", "seed=3", "--json").json
    other = terminal.type("plan", "revise", made["plan"], "max_steps", 4, "--json").json
    assert other["plan"] != made["plan"]
    started = terminal.type("plan", "start", other["plan"], "--detach", "--json").json
    settings = spec_of(starting.owner(), started["run"])["settings"]
    assert (settings["seed"], settings["max_steps"], started["proof"]) == (3, 4, "")
    again = terminal.type("plan", "start", other["plan"], "--detach", "--json")
    assert again.json["error"]["type"] == "PlanRefused"


def test_the_log_is_shown_by_operator_and_by_refusal(owner: Caller, terminal: Terminal) -> None:
    for name in ("ada", "ben"):
        operator = operator_of(owner, name)
        tools_for(operator.role)["show_run"].call({"run": "gone", "detail": "all"}, operator)
    shown = terminal.type("activity", "show", "--who", "ben", "--refused", "--json").json
    assert [each["who"] for each in shown["entries"]] == ["ben"]
    assert len(terminal.type("activity", "show", "--count", 1, "--json").json["entries"]) == 1
    assert terminal.type("activity", "verify").code == 0
    assert terminal.type("activity", "verify", "--expect", "0" * 64).code == 1


def test_limits_are_those_of_the_project(terminal: Terminal) -> None:
    assert terminal.type("limits", "--json").json["budget"]["steps"] == 50


def test_a_client_is_told_the_command_and_an_agent_the_schemas(terminal: Terminal) -> None:
    told = terminal.type("mcp", "--print-config", "--as", "coach", "--role", "viewer").json
    arguments = told["mcpServers"]["sparring"]["args"]
    assert arguments[-4:] == ["--as", "coach", "--role", "viewer"]
    every = terminal.type("mcp", "--print-tools").json
    some = terminal.type("mcp", "--print-tools", "--role", "viewer").json
    assert 0 < len(some) < len(every)
    assert terminal.type("mcp", "--role", "owner", "--print-tools").code == 2
