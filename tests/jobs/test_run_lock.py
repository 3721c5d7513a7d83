"""A run has one writer; what it reports says which attempt it belongs to."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sparring.contracts.errors import SparringError
from sparring.jobs import run_lock
from sparring.jobs.run_lock import hold_run, report_event, supervised_attempt
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_lines
from sparring.runs.claims import is_held


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1})
    return made


def test_a_second_writer_is_refused_and_the_next_one_is_not(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lock, "_TRIES", 2)
    with (
        hold_run(folder),
        pytest.raises(SparringError, match="run run is in use by another process"),
        hold_run(folder),
    ):
        pass
    with hold_run(folder):
        pass


def test_a_run_is_free_again_when_its_writer_fails(folder: RunFolder) -> None:
    with pytest.raises(ZeroDivisionError), hold_run(folder):
        raise ZeroDivisionError
    with hold_run(folder):
        pass


def test_a_run_can_be_asked_about_while_it_is_taken(folder: RunFolder) -> None:
    """Whoever asks holds the lock for an instant; a worker that starts then must not give up."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            is_held(folder)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(200):
            with hold_run(folder):
                pass
    finally:
        stop.set()
        asking.join()


def test_an_event_names_its_attempt_where_there_is_a_supervisor(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARRING_ATTEMPT", raising=False)
    assert supervised_attempt() is None
    report_event(folder, "note", message="alone")
    monkeypatch.setenv("SPARRING_ATTEMPT", "3")
    assert supervised_attempt() == 3
    report_event(folder, "note", message="supervised")
    alone, supervised = read_lines(folder.events)
    assert "attempt" not in alone
    assert (supervised["attempt"], supervised["author"]) == (3, "worker")
    assert supervised["message"] == "supervised"


def test_without_a_supervisor_the_worker_announces_that_the_state_has_changed(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def announced() -> list[str]:
        return [line["run"] for line in read_lines(folder.journal)]

    monkeypatch.delenv("SPARRING_ATTEMPT", raising=False)
    report_event(folder, "note", message="no change of state")
    assert announced() == []
    report_event(folder, "completed")
    assert announced() == ["run"]
    monkeypatch.setenv("SPARRING_ATTEMPT", "1")
    report_event(folder, "completed")
    assert announced() == ["run"]
