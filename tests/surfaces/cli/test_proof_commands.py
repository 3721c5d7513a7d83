"""`sparring check`, `audit` and `prove` as they are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.surfaces.cli import starting
from tests.operations.made import make_project, spec_of
from tests.surfaces.cli.terminal import Terminal


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    return Terminal(make_project(tmp_path, monkeypatch).folder, monkeypatch, capsys)


def test_a_check_plays_what_the_options_say_beside_the_models_that_are_named(
    terminal: Terminal,
) -> None:
    given = ["--cases", 3, "--rollouts", 8, "--num-generations", 2, "--dry-steps", 0]
    against = ["--against", "large@http://a/v1", "--key-variable", "KEY", "--other-cases", 1]
    run = terminal.type("check", "shop", *given, *against, "--detach").out.strip()
    spec = spec_of(starting.owner(), run)
    assert (spec["kind"], spec["cases"], spec["rollouts"]) == ("check", 3, 8)
    (other,) = spec["others"]
    assert (other["model"], other["key_variable"]) == ("large", "KEY")


def test_a_check_alone_compares_with_nobody(terminal: Terminal) -> None:
    against = ["--against", "large@http://a/v1", "--alone"]
    run = terminal.type("check", "shop", *against, "--detach").out.strip()
    assert spec_of(starting.owner(), run)["others"] == []


def test_an_audit_is_a_run_of_its_own(terminal: Terminal) -> None:
    run = terminal.type("audit", "shop", "--cases", 4, "--detach", "--json").json["run"]
    spec = spec_of(starting.owner(), run)
    assert (spec["kind"], spec["cases"]) == ("audit", 4)


@pytest.mark.parametrize("command", ["check", "audit"])
def test_a_verdict_is_an_exit_code_only_if_that_is_wanted(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(starting, command, lambda *_, **__: 110)
    assert terminal.type(command, "shop").code == 0
    assert terminal.type(command, "shop", "--strict").code == 110


def test_a_proof_exits_with_its_verdict_and_asks_for_what_was_typed(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def prove(request: dict[str, Any], runs: str | None, **_: bool) -> int:
        asked.append({**request, "runs": runs})
        return 110

    monkeypatch.setattr(starting, "prove", prove)
    given = ["--checkpoint", "step-2", "--split", "validation", "--picked-from", 3]
    assert terminal.type("prove", "shop-1", *given, "--runs", "there").code == 110
    (request,) = asked
    assert (request["run"], request["runs"]) == ("shop-1", "there")
    assert (request["checkpoint"], request["split"]) == ("step-2", "validation")
    assert (request["picked_from"], request["rollouts"]) == (3, 4)
    assert request["accept_changes"] is False


def test_a_proof_of_nothing_is_refused(terminal: Terminal) -> None:
    assert terminal.type("prove", "nobody").code == 102
