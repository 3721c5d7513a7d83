"""Rollouts on a terminal: pages that say where to go on, and messages that imitate no turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.surfaces.cli import rollouts
from tests.surfaces.cli.terminal import PROOF, TRAIN, Terminal, copy_samples


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(copy_samples(tmp_path / "porter", monkeypatch), monkeypatch, capsys)


def test_a_page_of_rollouts_has_the_total_and_the_next_start(terminal: Terminal) -> None:
    page = terminal.type("rollout", "list", TRAIN, "--count", 2, "--json").json
    assert (len(page["rollouts"]), page["next"]) == (2, 2)
    shown = terminal.type("rollout", "list", TRAIN, "--count", 2).out
    assert shown.endswith(f"1 to 2 of {page['total']}; more with --start 2\n")
    assert all(each["id"] in shown for each in page["rollouts"])
    last = terminal.type("rollout", "list", TRAIN, "--start", page["total"] - 1).out
    assert last.endswith(f"{page['total']} to {page['total']} of {page['total']}\n")


def test_a_filter_that_nothing_passes_gives_an_empty_page(terminal: Terminal) -> None:
    shown = terminal.type("rollout", "list", TRAIN, "--min-reward", 0.9)
    assert shown.code == 0
    assert shown.out.startswith("none of ")


def test_a_rollout_is_shown_with_its_turns_verdicts_and_reward(terminal: Terminal) -> None:
    page = terminal.type("rollout", "list", TRAIN, "--json").json
    rollout = page["rollouts"][0]["id"]
    record = terminal.type("rollout", "show", TRAIN, rollout, "--json").json
    shown = terminal.type("rollout", "show", TRAIN, rollout).out
    lines = shown.splitlines()
    roles = [line.split()[0] for line in lines if line and not line.startswith((" ", "─"))]
    assert [each["role"] for each in record["messages"]] == roles[: len(record["messages"])]
    assert "got_in: failed: " in shown
    assert f"reward {record['reward']:.2f}" in shown


def test_long_messages_are_cut_unless_all_is_wanted(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "_MAX_CHARACTERS", 5)
    rollout = terminal.type("rollout", "list", TRAIN, "--json").json["rollouts"][0]["id"]
    assert "characters; --full shows them)" in terminal.type("rollout", "show", TRAIN, rollout).out
    assert "--full" not in terminal.type("rollout", "show", TRAIN, rollout, "--full").out


def test_the_raw_text_of_a_rollout_has_its_instructions_and_tools(terminal: Terminal) -> None:
    rollout = terminal.type("rollout", "list", TRAIN, "--json").json["rollouts"][0]["id"]
    rows = terminal.type("rollout", "show", TRAIN, rollout, "--raw", "--json").json["rows"]
    shown = terminal.type("rollout", "show", TRAIN, rollout, "--raw").out
    text = "".join(part for span in rows[0]["spans"] for part in span["texts"])
    assert " ".join(text.split())[:200] in " ".join(shown.split())
    assert {span["kind"] for span in rows[0]["spans"]} >= {"prompt", "sampled"}


def test_an_unknown_run_rollout_or_model_is_an_error_that_names_it(terminal: Terminal) -> None:
    assert terminal.type("rollout", "show", "nobody", "x").code == 102
    wrong = terminal.type("rollout", "show", TRAIN, "nobody")
    assert wrong.code != 0
    assert "nobody" in wrong.err
    unknown = terminal.type("models", "fetch", "gpt")
    assert unknown.code == 2
    assert "use one of tiny, smollm2" in unknown.err


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
