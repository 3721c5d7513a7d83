"""`sparring run …` as it is typed: options become requests, answers have codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.cli.terminal import CHECK, EVAL, PROOF, STOPPED, TRAIN, Terminal, copy_samples


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(copy_samples(tmp_path / "porter", monkeypatch), monkeypatch, capsys)


def test_a_page_of_runs_names_the_next_one(terminal: Terminal) -> None:
    shown = terminal.type("run", "list", "--count", 2).out.splitlines()
    assert shown[0].split() == ["run", "kind", "state", "progress", "reward", "time", "started"]
    assert [line.split()[0] for line in shown[1:3]] == [STOPPED, "audit-bell-20261116-184545-5817"]
    assert shown[3].startswith("more: --after ")
    after = shown[3].removeprefix("more: --after ").strip()
    assert len(terminal.type("run", "list", "--after", after, "--json").json["runs"]) == 5


def test_an_empty_folder_and_a_filter_without_matches_have_different_messages(
    terminal: Terminal,
) -> None:
    filtered = terminal.type("run", "list", "--kind", "train", "--env", "shop")
    assert filtered.out == "no runs match\n"
    every = terminal.type("run", "list", "--runs", "elsewhere")
    assert every.out == "no runs; `sparring train NAME` starts one\n"


def test_a_run_is_shown_with_its_state_and_its_processes(terminal: Terminal) -> None:
    shown = terminal.type("run", "show", STOPPED).out
    assert shown.splitlines()[0] == f"{STOPPED}  stopped"
    assert "bell (train)" in shown
    assert str(terminal.folder / "runs" / STOPPED) in shown
    assert "logs/attempt-1/worker.log" in shown


def test_results_are_the_summary_the_history_and_the_weights(terminal: Terminal) -> None:
    shown = terminal.type("run", "results", TRAIN).out
    assert "validation at step 2" in shown
    assert "got_in" in shown
    assert "best checkpoint: " in shown
    assert "checkpoints/step-2" in shown


def test_a_run_without_a_summary_says_why(terminal: Terminal) -> None:
    (terminal.folder / "runs" / STOPPED / "report" / "summary.json").unlink()
    shown = terminal.type("run", "results", STOPPED).out
    assert f"{STOPPED} is stopped and has no summary" in shown


@pytest.mark.parametrize(("run", "code"), [(EVAL, 0), (STOPPED, 103)])
def test_waiting_for_what_has_ended_gives_its_code_at_once(
    terminal: Terminal, run: str, code: int
) -> None:
    shown = terminal.type("run", "wait", run)
    assert shown.code == code
    assert ("stopped" if code else "completed") in shown.out
    at_once = terminal.type("run", "wait", run, "--timeout", 0, "--json")
    assert at_once.code == code
    assert at_once.json["has_ended"]


def test_news_are_all_that_happened_after_the_cursor(terminal: Terminal) -> None:
    words = ["run", "wait", TRAIN, "--timeout", 0, "--news", "--json", "--cursor"]
    first = terminal.type(*words, 0).json
    assert "checkpoint" in [each["event"] for each in first["news"]]
    assert terminal.type(*words, first["cursor"]).json["news"] == []


def test_a_completed_run_is_not_resumed_but_named(terminal: Terminal) -> None:
    printed = terminal.type("run", "resume", EVAL, "--detach")
    assert printed.out == f"{EVAL}\n"
    assert "the run is already completed" in printed.err


def test_watching_a_training_shows_it_and_its_proof(terminal: Terminal) -> None:
    shown = terminal.type("run", "watch", TRAIN, "--json").json
    assert (shown["run"], shown["proof"]["run"]) == (TRAIN, PROOF)
    assert "broken: 44 of 48" in terminal.type("run", "watch", CHECK).out


def test_watching_what_was_stopped_says_how_it_ended(terminal: Terminal) -> None:
    error = terminal.type("run", "watch", STOPPED, "--json").json["error"]
    assert (error["type"], error["exit_code"]) == ("Stopped", 103)
    assert f"sparring run resume {STOPPED}" in error["message"]


def test_deleting_needs_confirmation(terminal: Terminal) -> None:
    refused = terminal.type("run", "delete", STOPPED, "--json").json["error"]
    assert f"sparring run delete {STOPPED} --yes" in refused["message"]
    assert (terminal.folder / "runs" / STOPPED).exists()
    deleted = terminal.type("run", "delete", STOPPED, "--yes")
    assert deleted.out.startswith(f"deleted {STOPPED} (")
    assert not (terminal.folder / "runs" / STOPPED).exists()


def test_an_index_is_built_from_the_folders(terminal: Terminal) -> None:
    assert terminal.type("run", "reindex").out == "7 runs\n"


def test_comparing_one_run_is_refused(terminal: Terminal) -> None:
    refused = terminal.type("run", "compare", EVAL)
    assert refused.code == 2
    assert f"at least two runs to compare; you named only {EVAL}" in refused.err


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


def test_commands_that_a_run_does_not_allow_are_refused(terminal: Terminal) -> None:
    assert terminal.type("run", "compare", EVAL).code == 2
    assert terminal.type("run", "join", EVAL).code != 0
    stopped = terminal.type("run", "stop", EVAL)
    assert (stopped.code, "completed" in stopped.out + stopped.err) in ((0, True), (2, True))
