"""A run is followed to its end, left running, or stopped, as the person at the keyboard wishes."""

from __future__ import annotations

import io
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import NotFinished, RunFailed
from sparring.operations.operation import Caller, Role
from sparring.operations.starting import Started
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import write_json
from sparring.runs.lifecycle import RunState
from sparring.surfaces.cli import following
from sparring.surfaces.cli.following import begin, follow
from tests.surfaces.cli.terminal import EVAL, PROOF, STOPPED, TRAIN, copy_samples

NEW = "bell-20270101-000000-abcd"


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    project = copy_samples(tmp_path / "porter", monkeypatch)
    monkeypatch.chdir(project)
    return Caller(Role.OWNER, project / "runs", folder=project)


@pytest.fixture
def running(owner: Caller) -> RunFolder:
    """A training run that is on, at its third step."""
    folder = RunFolder(owner.runs / NEW)
    folder.path.mkdir()
    shutil.copy(owner.runs / TRAIN / "spec.json", folder.spec)
    append_state(folder, RunState.QUEUED, author="test")
    for state in (RunState.STARTING, RunState.RUNNING):
        append_state(folder, state, author="supervisor", epoch=1)
    beat = {"pid": 1, "step": 3, "steps": 9, "tokens_drawn": 5, "messages": []}
    write_json(folder.heartbeat, beat | {"metrics": {"loss": 0.5}})
    write_json(folder.rank_heartbeat(0), {"doing": "updating"})
    return folder


class Keyboard:
    """Each poll of the run does the next of these. Other threads sleep as they would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *deeds: Callable[[], Any]) -> None:
        self.deeds = list(deeds)
        sleep = time.sleep

        def do_next(seconds: float) -> None:
            is_polled = threading.current_thread() is threading.main_thread()
            self.deeds.pop(0)() if is_polled else sleep(seconds)

        monkeypatch.setattr(following.time, "sleep", do_next)


def ctrl_c() -> None:
    raise KeyboardInterrupt


def ended(folder: RunFolder, *states: RunState, **data: Any) -> Callable[[], None]:
    def end() -> None:
        for state in states:
            append_state(folder, state, author="supervisor", epoch=1, **data)

    return end


def test_a_detached_run_is_named_and_nothing_else_on_standard_output(
    owner: Caller, running: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    started = Started(run=EVAL, folder="x", message="waiting for room", proof=PROOF)
    begin(started, owner, detach=True, as_json=False)
    printed = capsys.readouterr()
    assert printed.out == f"{EVAL}\n"
    assert f"other runs are active: {NEW}; runs on one machine slow each other down" in printed.err
    assert "waiting for room" in printed.err
    assert f"proof of this training: {PROOF}" in printed.err
    begin(started, owner, detach=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["run"] == EVAL


def test_a_completed_training_is_shown_with_its_proof(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(Started(run=TRAIN, folder="x", proof=PROOF), owner, detach=False, as_json=False)
    shown = capsys.readouterr().out
    assert shown.index("last step") < shown.index("not shown: ")


def test_progress_is_printed_on_standard_error(
    owner: Caller,
    running: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_json(
        running.summary, json.loads((owner.runs / TRAIN / "report/summary.json").read_text())
    )
    Keyboard(monkeypatch, lambda: None, ended(running, RunState.COMPLETED))
    follow(Started(run=NEW, folder=""), owner, as_json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["steps"] == 2
    assert "updating the weights" in printed.err
    assert printed.err.count("step 3/9 · loss +0.500") == 1


def test_without_a_terminal_ctrl_c_leaves_what_is_only_looked_at(
    owner: Caller, running: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    Keyboard(monkeypatch, ctrl_c)
    with pytest.raises(NotFinished, match=f"sparring run watch {NEW}"):
        follow(Started(run=NEW, folder=""), owner, as_json=False, only_looks=True)
    assert "stop_requested" not in running.events.read_text()


def test_without_a_terminal_ctrl_c_stops_what_was_started(
    owner: Caller,
    running: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    Keyboard(monkeypatch, ctrl_c, ended(running, RunState.STOPPING, RunState.STOPPED))
    with pytest.raises(RunFailed) as raised:
        follow(Started(run=NEW, folder=""), owner, as_json=False)
    assert raised.value.name == "Stopped"
    assert f"sparring run resume {NEW}" in str(raised.value)
    assert "stop_requested" in running.events.read_text()
    assert "stopping after this step" in capsys.readouterr().err


class Typist(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "is_left"), [("l\n", True), ("", True), ("\n", False)])
def test_at_a_terminal_ctrl_c_asks_and_loses_no_work(
    owner: Caller,
    running: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    is_left: bool,
) -> None:
    monkeypatch.setattr(sys, "stdin", Typist(typed))
    end = ended(running, RunState.FAILED, message="it broke", error="ValueError", exit_code=100)
    Keyboard(monkeypatch, ctrl_c, end)
    with pytest.raises(NotFinished if is_left else RunFailed):
        follow(Started(run=NEW, folder=""), owner, as_json=False)
    assert "stop_requested" not in running.events.read_text()


def test_a_failure_has_the_runs_error_and_code_and_a_guards_is_not_to_be_resumed(
    owner: Caller, running: RunFolder
) -> None:
    details = {"message": "collapsed\x1b", "exit_code": 104, "error": "GuardStop"}
    ended(running, RunState.FAILED, **details)()
    with pytest.raises(RunFailed) as raised:
        follow(Started(run=NEW, folder=""), owner, as_json=False)
    assert (raised.value.name, raised.value.exit_code) == ("GuardStop", 104)
    assert str(raised.value) == "collapsed\\x1b"


@pytest.mark.parametrize(
    ("error", "is_resumed"),
    [
        ("SettingError", False),
        ("UnknownModel", False),
        ("MissingPackage", False),
        ("InfrastructureError", True),
        ("NotEnoughSpace", True),
        ("ZeroDivisionError", True),
    ],
)
def test_only_a_run_that_may_end_otherwise_has_a_resume_hint(
    owner: Caller, running: RunFolder, error: str, is_resumed: bool
) -> None:
    ended(running, RunState.FAILED, message="no", error=error)()
    with pytest.raises(RunFailed) as raised:
        follow(Started(run=NEW, folder=""), owner, as_json=False)
    assert ("run resume" in str(raised.value)) is is_resumed


def test_a_proof_that_fails_does_not_fail_the_training(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(Started(run=TRAIN, folder="", proof=STOPPED), owner, as_json=True)
    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    assert (shown["run"], shown["proof"]) == (TRAIN, None)
    assert "no proof: " in printed.err


def test_a_restart_is_printed_with_its_cause(
    owner: Caller,
    running: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def restart() -> None:
        details = {"epoch": 1, "attempt": 1, "cause": "killed", "message": "rank 1"}
        append_event(running, "restart", author="supervisor", **details)
        append_state(running, RunState.STARTING, author="supervisor", epoch=1)

    Keyboard(monkeypatch, restart, ctrl_c)
    with pytest.raises(NotFinished):
        follow(Started(run=NEW, folder=""), owner, as_json=False, only_looks=True)
    assert "restarting: killed: rank 1" in capsys.readouterr().err


def test_a_resumed_run_does_not_repeat_the_lines_of_its_earlier_attempt(
    owner: Caller,
    running: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for state in (RunState.STOPPING, RunState.STOPPED, RunState.QUEUED, RunState.STARTING):
        append_state(running, state, author="supervisor", epoch=1)
    beat = {
        "pid": 1,
        "step": 3,
        "steps": 9,
        "tokens_drawn": 5,
        "messages": ["earlier"],
        "time": 1.0,
    }
    write_json(running.heartbeat, beat)

    def goes_on() -> None:
        now = {"pid": 2, "messages": ["resumed from step 3"], "time": time.time() + 1}
        write_json(running.heartbeat, beat | now)

    end = ended(running, RunState.RUNNING, RunState.STOPPING, RunState.STOPPED)
    Keyboard(monkeypatch, lambda: None, goes_on, end)
    with pytest.raises(RunFailed):
        follow(Started(run=NEW, folder=""), owner, as_json=False)
    printed = capsys.readouterr().err
    assert "resumed from step 3" in printed
    assert "earlier" not in printed


def test_without_a_terminal_it_says_now_and_then_where_it_is(
    owner: Caller,
    running: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(following, "_LINE_SECONDS", 0.0)
    Keyboard(monkeypatch, lambda: None, ended(running, RunState.STOPPING, RunState.STOPPED))
    with pytest.raises(RunFailed):
        follow(Started(run=NEW, folder=""), owner, as_json=False)
    assert "updating the weights · step 3 of 9" in capsys.readouterr().err
