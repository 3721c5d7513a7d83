"""Plans, limits, the activity log and tokens, as the owner types and sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.operations.operation import Caller
from sparring.surfaces.cli import callers
from sparring.surfaces.tools.catalogue import tools_for
from tests.operations.made import edit_project, make_project, operator_of, spec_of
from tests.surfaces.cli.terminal import Terminal, Typed


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def terminal(
    owner: Caller, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    made = Terminal(owner.folder, monkeypatch, capsys)
    monkeypatch.setenv("COLUMNS", "300")
    return made


def refuse(owner: Caller, **given: Any) -> None:
    operator = operator_of(owner)
    assert tools_for(operator.role)["show_run"].call(given, operator).is_error


def lines(typed: Typed) -> list[str]:
    return [" ".join(line.split()) for line in typed.out.splitlines()]


def test_a_plan_is_shown_with_its_cost_and_how_to_start_it(
    owner: Caller, terminal: Terminal
) -> None:
    words = ["plan", "make", "shop", "--no-prove", "--set", "max_steps=4"]
    shown = lines(terminal.type(*words))
    plan = shown[0].removeprefix("plan ")
    assert shown[1] == "what train shop with tiny"
    assert "steps 4" in shown
    assert any(line.startswith("rollouts ") and "at most" in line for line in shown)
    assert shown[-1] == f"start it sparring plan start {plan}"
    assert not list(owner.runs.glob("shop-*"))


def test_limits_are_an_operators_and_what_is_not_limited_says_so(
    owner: Caller, terminal: Terminal
) -> None:
    shown = lines(terminal.type("limits"))
    assert "steps per run 50" in shown
    assert "hours per run no limit" in shown
    assert "starts per day 5 (0 used)" in shown
    assert "unlocked by may_set max_steps, config.size" in shown
    assert "locked for everybody beta" in shown
    edit_project(owner, 'may_set = ["max_steps", "config.size"]', "")
    assert "unlocked by may_set nothing" in lines(terminal.type("limits"))


def test_the_log_says_who_was_refused_what_and_why(owner: Caller, terminal: Terminal) -> None:
    assert terminal.type("activity", "show").out == "the activity log is empty\n"
    refuse(owner, run="gone", detail="\x1b[2J")
    (line,) = lines(terminal.type("activity", "show"))
    assert "coach refused " in line
    assert "detail must be short or full" in line
    assert "\x1b" not in line


def test_a_log_that_was_changed_is_not_intact(owner: Caller, terminal: Terminal) -> None:
    refuse(owner, run="gone", detail="all")
    intact = terminal.type("activity", "verify")
    assert (intact.code, "is intact: 1 entries" in intact.out) == (0, True)
    verified = terminal.type("activity", "verify", "--json").json
    log = Path(verified["file"])
    log.write_text(log.read_text().replace("coach", "couch"))
    changed = terminal.type("activity", "verify")
    assert (changed.code, "is NOT intact" in changed.out) == (1, True)
    assert changed.err
    assert terminal.type("activity", "verify", "--expect", verified["digest"], "--json").code == 1


def test_a_plan_is_made_revised_and_started_once(terminal: Terminal) -> None:
    made = terminal.type("plan", "make", "shop", "--no-prove", "--set", "seed=3", "--json").json
    other = terminal.type("plan", "revise", made["plan"], "max_steps", 4, "--json").json
    assert other["plan"] != made["plan"]
    words = ["plan", "revise", made["plan"], "temperature", "0.5", "--json"]
    assert terminal.type(*words).json["settings"]["temperature"] == 0.5
    started = terminal.type("plan", "start", other["plan"], "--detach", "--json").json
    settings = spec_of(callers.owner(), started["run"])["settings"]
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


def test_tokens_are_created_listed_and_revoked(terminal: Terminal) -> None:
    made = terminal.type("token", "create", "vera", "--days", 0, "--json").json
    assert made["token"].startswith("sparring_")
    assert (made["role"], made["expires"]) == ("viewer", None)
    assert "vera  expires never" in terminal.type("token", "list").out
    assert "vera is revoked" in terminal.type("token", "revoke", made["id"]).out
    listed = terminal.type("token", "list", "--json").json["tokens"]
    assert [each["state"] for each in listed] == ["revoked"]
    other = terminal.type("token", "create", "kim", "--role", "operator", "--days", 7)
    assert other.err == "token of kim (operator); it is not shown again\n"
