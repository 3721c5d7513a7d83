"""`sparring rollout …` as it is typed: options become queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.cli.terminal import PROOF, TRAIN, Terminal, copy_samples


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(copy_samples(tmp_path / "porter", monkeypatch), monkeypatch, capsys)


def test_rollouts_are_listed_by_what_the_options_say(terminal: Terminal) -> None:
    page = terminal.type("rollout", "list", TRAIN, "--start", 1, "--count", 2, "--json").json
    assert [each["position"] for each in page["rollouts"]] == [1, 2]
    none = terminal.type("rollout", "list", TRAIN, "--ending", "answered", "--min-reward", 1)
    assert none.out.startswith("none of ")


def test_a_proof_lists_the_rollouts_of_one_player(terminal: Terminal) -> None:
    def ids(*options: object) -> list[str]:
        page = terminal.type("rollout", "list", PROOF, "--count", 500, *options, "--json").json
        return [each["id"] for each in page["rollouts"]]

    trained = ids("--player", "trained")
    assert trained
    assert trained == [each for each in ids() if each.startswith("trained/")]
    assert ids("--player", "trained", "--start", 10_000) == []
    wrong = terminal.type("rollout", "list", PROOF, "--player", "teacher")
    assert (wrong.code, "it has base" in wrong.err) == (2, True)


def test_validation_rollouts_are_listed_and_shown(terminal: Terminal) -> None:
    page = terminal.type("rollout", "list", TRAIN, "--log", "validation", "--json").json
    rollout = page["rollouts"][0]["id"]
    shown = terminal.type("rollout", "show", TRAIN, rollout, "--log", "validation", "--json").json
    assert shown["id"] == rollout
    assert terminal.type("rollout", "list", TRAIN, "--log", "dreams").code == 2
