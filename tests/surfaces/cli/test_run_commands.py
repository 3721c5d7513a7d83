"""`sparring run …` as it is typed: options become queries, and answers have codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.cli.terminal import CHECK, EVAL, STOPPED, TRAIN, Terminal, copy_samples


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(copy_samples(tmp_path / "porter", monkeypatch), monkeypatch, capsys)


def test_runs_are_listed_by_state_kind_and_environment(terminal: Terminal) -> None:
    def listed(*options: str) -> list[str]:
        page = terminal.type("run", "list", *options, "--json").json
        return [each["run"] for each in page["runs"]]

    assert len(listed()) == 7
    assert listed("--state", "stopped") == [STOPPED]
    assert len(listed("--state", "stopped", "--state", "completed")) == 7
    assert listed("--kind", "check") == [CHECK]
    assert listed("--env", "shop") == []
    assert listed("--count", "1", "--after", STOPPED) == ["audit-bell-20261116-184545-5817"]


def test_a_run_is_named_by_a_part_of_its_id_in_another_folder_too(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = terminal.folder / "runs"
    assert terminal.type("run", "show", "77fe", "--runs", runs, "--json").json["run"] == EVAL
    assert terminal.type("run", "show", "77fe").code == 102


@pytest.mark.parametrize(("run", "code"), [(EVAL, 0), (STOPPED, 103)])
def test_wait_exits_with_the_code_of_the_run(terminal: Terminal, run: str, code: int) -> None:
    assert terminal.type("run", "wait", run, "--seconds", 0).code == code


def test_results_and_logs_are_as_long_as_they_are_wanted(terminal: Terminal) -> None:
    rows = terminal.type("run", "results", TRAIN, "--rows", 1, "--json").json["history"]
    assert [each["step"] for each in rows] == [2]
    text = terminal.type("run", "logs", TRAIN, "-n", 1, "--json").json["text"]
    assert len(text.splitlines()) <= 1


def test_a_log_is_followed_as_text_only(terminal: Terminal) -> None:
    refused = terminal.type("run", "logs", TRAIN, "--follow", "--json")
    assert refused.code == 2
    assert "--follow prints text" in refused.out


def test_an_ended_run_is_followed_to_its_results(terminal: Terminal) -> None:
    assert terminal.type("run", "watch", EVAL, "--json").json["run"] == EVAL
    assert terminal.type("run", "resume", EVAL, "--json").json["run"] == EVAL
    assert terminal.type("run", "watch", STOPPED).code == 103


def test_an_ended_run_is_deleted_only_on_purpose(terminal: Terminal) -> None:
    refused = terminal.type("run", "delete", STOPPED)
    assert refused.code == 2
    assert f"sparring run delete {STOPPED} --yes" in refused.err
    assert terminal.type("run", "delete", STOPPED, "--yes", "--json").json["run"] == STOPPED
    assert terminal.type("run", "reindex", "--json").json["runs"] == 6


def test_what_makes_no_sense_is_refused(terminal: Terminal) -> None:
    assert terminal.type("run", "compare", EVAL).code == 2
    assert terminal.type("run", "join", EVAL).code != 0
    stopped = terminal.type("run", "stop", EVAL)
    assert (stopped.code, "completed" in stopped.out + stopped.err) in ((0, True), (2, True))
