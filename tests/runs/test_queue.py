"""Runs wait for their turn, start in order, and are looked after by whoever comes along."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sparring.contracts.errors import LauncherFailed
from sparring.operations.operation import Caller, Role
from sparring.operations.run_views import ListRuns
from sparring.operations.runs import list_runs
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import write_json
from sparring.runs import queue
from sparring.runs.claims import claim
from sparring.runs.history import read_history
from sparring.runs.index import Index
from sparring.runs.launchers import Local, SupervisorPresence, find_supervisor, handle_of
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import identity_of, since_boot
from sparring.runs.status import supervised_status


@pytest.fixture
def launched(monkeypatch):
    """Which runs were started, instead of starting them."""
    started: list[str] = []

    def launch(folder: RunFolder, _: int) -> dict[str, object]:
        started.append(folder.id)
        return {}

    def find_supervisor(folder: RunFolder, _: int = 0) -> SupervisorPresence:
        return SupervisorPresence.YES if folder.id in started else SupervisorPresence.NO

    monkeypatch.setattr(queue, "launch", launch)
    monkeypatch.setattr(queue, "find_supervisor", find_supervisor)
    return started


def wait_in(runs: Path, name: str, most: int | None) -> RunFolder:
    folder = RunFolder(runs / name)
    folder.create({"format": 1, "kind": "train", "environment": "bell"})
    append_state(folder, RunState.QUEUED, author="test", runs_at_once=most)
    return folder


def move(folder: RunFolder, *states: RunState) -> None:
    for state in states:
        append_state(folder, state, author="supervisor", epoch=1)


def test_runs_start_in_order_as_far_as_there_is_room(tmp_path, launched):
    folders = [wait_in(tmp_path, f"run-{number}", 2) for number in range(4)]
    queue.reconcile_folder(tmp_path)
    assert launched == ["run-0", "run-1"]
    queue.reconcile_folder(tmp_path)  # they are on their way: nothing is started twice
    assert launched == ["run-0", "run-1"]
    move(folders[0], RunState.STARTING, RunState.COMPLETED)
    queue.reconcile_folder(tmp_path)
    assert launched == ["run-0", "run-1", "run-2"]


def test_a_run_that_cannot_be_launched_takes_no_slot(tmp_path, monkeypatch, launched):
    launch = queue.launch

    def fail_first(folder, epoch):
        if folder.id == "run-0":
            raise LauncherFailed("no such partition")
        return launch(folder, epoch)

    monkeypatch.setattr(queue, "launch", fail_first)
    folders = [wait_in(tmp_path, f"run-{number}", 1) for number in range(3)]
    queue.reconcile_folder(tmp_path)
    assert read_history(folders[0]).history.state is RunState.FAILED
    assert launched == ["run-1"]


def test_a_queued_run_without_a_slot_keeps_later_runs_waiting(tmp_path, launched):
    busy = wait_in(tmp_path, "a-busy", None)
    move(busy, RunState.STARTING, RunState.RUNNING)
    launched.append("a-busy")
    wait_in(tmp_path, "b-large", 1)
    wait_in(tmp_path, "c-small", 9)
    queue.reconcile_folder(tmp_path)
    assert launched == ["a-busy"]


def follow(runs: Path, name: str, after: str) -> RunFolder:
    folder = RunFolder(runs / name)
    folder.create({"format": 1, "kind": "prove", "environment": "bell", "after": after})
    append_state(folder, RunState.QUEUED, author="test", runs_at_once=1)
    return folder


def test_a_run_that_follows_another_waits_for_it_and_takes_no_slot(tmp_path, launched):
    training = wait_in(tmp_path, "a-training", 1)
    proof = follow(tmp_path, "b-proof", "a-training")
    wait_in(tmp_path, "c-other", 2)
    queue.reconcile_folder(tmp_path)
    assert launched == ["a-training", "c-other"]
    for name in launched:
        move(RunFolder(tmp_path / name), RunState.STARTING, RunState.RUNNING)
    queue.reconcile_folder(tmp_path)
    assert launched == ["a-training", "c-other"]
    move(RunFolder(tmp_path / "c-other"), RunState.COMPLETED)
    move(training, RunState.COMPLETED)
    queue.reconcile_folder(tmp_path)
    assert launched == ["a-training", "c-other", "b-proof"]
    assert read_history(proof).history.state is RunState.QUEUED


@pytest.mark.parametrize("ending", [RunState.FAILED, RunState.STOPPED])
def test_a_run_is_stopped_with_the_reason_if_the_one_before_it_did_not_complete(
    tmp_path, launched, ending
):
    training = wait_in(tmp_path, "a-training", 1)
    proof = follow(tmp_path, "b-proof", "a-training")
    before = [RunState.STOPPING] if ending is RunState.STOPPED else []
    move(training, RunState.STARTING, RunState.RUNNING, *before)
    append_state(training, ending, author="test", message="no such model\nin 3 places")
    queue.reconcile_folder(tmp_path)
    history = read_history(proof).history
    assert history.state is RunState.STOPPED
    message = f"run a-training, which it follows, {ending.value}: no such model"
    assert history.message == message
    assert launched == []


def test_a_run_fails_if_the_one_before_it_was_deleted(tmp_path, launched):
    proof = follow(tmp_path, "b-proof", "a-training")
    queue.reconcile_folder(tmp_path)
    history = read_history(proof).history
    assert (history.state, launched) == (RunState.FAILED, [])
    assert "no longer exists" in history.message


def test_a_run_that_was_stopped_in_the_queue_is_not_started(tmp_path, launched):
    folder = wait_in(tmp_path, "run", 1)
    append_event(folder, "stop_requested", author="ada")
    queue.reconcile_folder(tmp_path)
    assert launched == []
    assert read_history(folder).history.state is RunState.STOPPED


def test_a_run_without_a_supervisor_gets_one_and_the_others_are_left_alone(tmp_path, launched):
    lost, watched, done = (wait_in(tmp_path, name, None) for name in ("lost", "watched", "done"))
    for folder in (lost, watched):
        move(folder, RunState.STARTING, RunState.RUNNING)
    move(done, RunState.STARTING, RunState.COMPLETED)
    launched.append("watched")
    queue.reconcile(Index(tmp_path))
    assert launched == ["watched", "lost"]


def test_a_run_from_python_whose_process_is_gone_has_failed(tmp_path, launched):
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "train"})
    append_event(folder, "started", author="worker", pid=1)
    queue.reconcile(Index(tmp_path))
    history = read_history(folder).history
    message = "its process ended without reporting a result"
    assert (history.state, history.message) == (RunState.FAILED, message)
    assert launched == []


def test_a_run_that_python_is_still_making_is_left_alone(tmp_path, launched):
    RunFolder(tmp_path / "loading").create({"format": 1, "kind": "train"})
    queue.reconcile(Index(tmp_path))
    supervised_status(RunFolder(tmp_path / "loading"))
    assert launched == []


def test_the_status_of_a_queued_run_starts_it_if_there_is_a_slot(tmp_path, launched):
    folder = wait_in(tmp_path, "run", 1)
    supervised_status(folder)
    assert launched == ["run"]


def test_another_hosts_process_is_not_judged_from_here(tmp_path, launched):
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "train"})
    append_event(folder, "started", author="worker", pid=1, host="elsewhere")
    queue.reconcile(Index(tmp_path))
    assert read_history(folder).history.state is RunState.RUNNING


def test_a_supervisor_that_never_gets_as_far_as_claiming_is_given_up(tmp_path, monkeypatch):
    folder = wait_in(tmp_path, "run", None)
    monkeypatch.setattr(queue, "_was_just_tried", lambda *_: False)
    monkeypatch.setattr(Local, "start", lambda *_: {"pid": 1, "start": "gone"})
    for _ in range(20):
        queue.reconcile(Index(tmp_path))
    history = read_history(folder).history
    assert (history.state, history.cause) == (RunState.FAILED, "launcher")
    assert "times without claiming" in history.message
    assert handle_of(folder)["tries"] == 10


def test_a_supervisor_of_the_last_life_does_not_count_in_the_next(tmp_path):
    """It is still there, with nothing but its end before it, when the run is resumed."""
    folder = wait_in(tmp_path, "run", None)
    assert claim(folder, 1)  # by this very process, which lives
    write_json(
        folder.supervisor, {"since_boot": since_boot(), **identity_of(os.getpid()).to_dict()}
    )
    move(folder, RunState.STARTING, RunState.FAILED)
    append_state(folder, RunState.QUEUED, author="test", after=1)
    history = read_history(folder).history
    assert find_supervisor(folder) is SupervisorPresence.YES
    assert find_supervisor(folder, history.queued_epoch) is SupervisorPresence.NO


def test_a_second_claim_of_an_epoch_fails(tmp_path):
    folder = wait_in(tmp_path, "run", None)
    assert claim(folder, 1)
    assert not claim(folder, 1)
    assert claim(folder, 2)
    assert not claim(folder, 1)


HARM = {
    "events.jsonl": [
        '{"event":"state","state":"starting","time":"soon"}',
        '{"event":"attempt","epoch":null}',
        '{"event":"checkpoint","step":1e999}',
        "[" * 5000,
        "\x00",
    ],
    "heartbeat.json": [
        '{"step":"a","steps":[],"metrics":[1]}',
        "[]",
        "{",
        '{"metrics":{"reward":{}}}',
    ],
    "supervisor.json": ['{"seconds":null,"attempt":"x","processes":7}', "7"],
    "launch.json": ['{"since_boot":"x"}', "[]"],
    "spec.json": ["{", '{"format":99}', "[]", '{"policy":[]}'],
    "epochs/²": [""],
    "metrics.jsonl": ["{", "7", '{"attempt":1}'],
}


@pytest.mark.parametrize(
    ("file", "text"), [(file, text) for file, texts in HARM.items() for text in texts]
)
@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING, RunState.FAILED])
def test_a_spoilt_folder_does_not_keep_other_runs_from_starting(
    tmp_path, launched, file, text, state
):
    owner = Caller(Role.OWNER, tmp_path, folder=tmp_path)
    spoilt, whole = wait_in(tmp_path, "spoilt", None), wait_in(tmp_path, "whole", None)
    if state is not RunState.QUEUED:
        move(spoilt, RunState.STARTING, RunState.RUNNING)
    if state is RunState.FAILED:
        move(spoilt, RunState.FAILED)
    index = Index(tmp_path)
    for is_indexed in (False, True):
        if is_indexed:
            index.refresh()
        place = spoilt.path / file
        place.parent.mkdir(exist_ok=True)
        with place.open("a" if file.endswith("jsonl") else "w") as out:
            out.write(f"{text}\n")
        assert "whole" in [line.run for line in list_runs(ListRuns(), owner).runs]
    queue.reconcile(index)
    assert "whole" in launched
    assert index.reindex() >= 1
    assert whole.spec.is_file()


def test_a_run_whose_launcher_raises_fails_with_the_reason(tmp_path, monkeypatch):
    def launch(*_: object) -> None:
        raise OSError("no such program: sbatch")

    monkeypatch.setattr(queue, "launch", launch)
    folder = wait_in(tmp_path, "run", None)
    queue.reconcile_folder(tmp_path)
    history = read_history(folder).history
    assert (history.state, history.cause) == (RunState.FAILED, "launcher")
    assert "sbatch" in history.message


def test_runs_of_the_launcher_manual_take_no_slot_while_they_wait(tmp_path, monkeypatch):
    launched = []
    monkeypatch.setattr(queue, "launch", lambda folder, _: launched.append(folder.id) or {})
    manual = [wait_in(tmp_path, f"a-{number}", 2) for number in range(2)]
    for folder in manual:
        spec = {"format": 1, "kind": "train", "supervision": {"launcher": "manual"}}
        write_json(folder.spec, spec)
    wait_in(tmp_path, "b", 2)
    queue.reconcile_folder(tmp_path)
    assert launched == ["b"]
    assert claim(manual[0], 1)  # somebody started it
    wait_in(tmp_path, "c", 1)
    queue.reconcile_folder(tmp_path)
    assert launched[1:] in ([], ["b"])


def test_a_start_that_is_under_way_is_not_repeated(tmp_path, monkeypatch):
    folder = wait_in(tmp_path, "run", None)
    monkeypatch.setattr(queue, "launch", lambda *_: pytest.fail("it was started twice"))
    begun = {"format": 1, "since_boot": since_boot() - 20, "epoch": 1, "tries": 1}
    write_json(folder.launch, {**begun, "is_starting": True})
    queue.reconcile_folder(tmp_path)


def test_a_start_that_is_under_way_on_another_host_is_not_repeated(tmp_path, monkeypatch):
    folder = wait_in(tmp_path, "run", None)
    monkeypatch.setattr(queue, "launch", lambda *_: pytest.fail("it was started twice"))
    begun = {"format": 1, "since_boot": since_boot() + 9e6, "boot": "another", "epoch": 1}
    write_json(folder.launch, {**begun, "time": time.time() - 20, "is_starting": True})
    queue.reconcile_folder(tmp_path)


def test_a_dead_supervisor_is_not_replaced_twice_by_two_who_look_at_once(tmp_path, monkeypatch):
    folder = wait_in(tmp_path, "run", None)
    append_state(folder, RunState.STARTING, author="supervisor", epoch=1)
    under_way = iter([False, True])  # before the lock, and once it is held
    monkeypatch.setattr(queue, "_was_just_tried", lambda *_: next(under_way))
    monkeypatch.setattr(queue, "launch", lambda *_: pytest.fail("it was started twice"))
    queue.ensure_supervised(folder, read_history(folder).history)
    assert list(under_way) == []
