"""A supervisor of this machine is found by its process and believed only while it is heard."""

from __future__ import annotations

import fcntl
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.runs.claims import claim
from sparring.runs.launcher import SupervisorPresence
from sparring.runs.local import SILENT_SECONDS, Local, is_held
from sparring.runs.processes import ProcessIdentity, identity_of, since_boot
from tests.supervised import wait_for


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1})
    return made


def heard(folder: RunFolder, seconds_ago: float, **fields: Any) -> None:
    beat = {"since_boot": since_boot() - seconds_ago, **identity_of(os.getpid()).to_dict()}
    write_json(folder.supervisor, beat | fields)


def handle(identity: ProcessIdentity, **fields: Any) -> dict[str, Any]:
    return {"since_boot": since_boot(), "epoch": 1, **identity.to_dict(), **fields}


def test_start_runs_the_supervisor_of_that_epoch_in_a_session_of_its_own(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@" "$(ps -o sid= -p $$)"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    started = Local().start(folder, 7)
    log = folder.path / "logs" / "supervisor.log"
    wait_for(lambda: log.read_text().endswith("\n"), 10)
    *command, session = log.read_text().split()
    assert command == ["-m", "sparring.runs.supervisor", str(folder.path.resolve()), "7"]
    assert int(session) == started["pid"]


def test_the_claimant_is_there_as_long_as_it_is_heard(folder: RunFolder) -> None:
    assert claim(folder, 1)
    heard(folder, 1.0)
    assert Local().look(folder, {}, 0) is SupervisorPresence.YES
    heard(folder, SILENT_SECONDS + 1)
    assert Local().look(folder, {}, 0) is SupervisorPresence.NO


@pytest.mark.parametrize("fields", [{"pid": 1}, {"boot": "another"}, {"since_boot": "x"}])
def test_a_heartbeat_of_another_process_does_not_speak_for_it(
    folder: RunFolder, fields: dict[str, Any]
) -> None:
    assert claim(folder, 1)
    heard(folder, 1.0, **fields)
    assert Local().look(folder, {}, 0) is SupervisorPresence.NO


def test_one_that_was_just_started_need_not_have_been_heard(folder: RunFolder) -> None:
    own = identity_of(os.getpid())
    assert Local().look(folder, handle(own), 0) is SupervisorPresence.YES
    late = handle(own, since_boot=since_boot() - SILENT_SECONDS - 1)
    assert Local().look(folder, late, 0) is SupervisorPresence.NO


def test_only_later_epochs_count(folder: RunFolder) -> None:
    own = identity_of(os.getpid())
    assert claim(folder, 1)
    heard(folder, 1.0)
    assert Local().look(folder, handle(own), 1) is SupervisorPresence.NO
    assert Local().look(folder, handle(own, epoch=2), 1) is SupervisorPresence.YES


def test_a_dead_process_whose_number_was_given_again_is_not_alive(folder: RunFolder) -> None:
    former = replace(identity_of(os.getpid()), start="1")
    assert Local().look(folder, handle(former), 0) is SupervisorPresence.NO


def test_a_claim_from_another_host_is_not_judged_from_here(folder: RunFolder) -> None:
    distant = replace(identity_of(os.getpid()), host="another")
    write_json(folder.epochs / "000001.json", distant.to_dict())
    assert Local().look(folder, {}, 0) is SupervisorPresence.ELSEWHERE


def test_nothing_is_ever_pending(folder: RunFolder) -> None:
    assert Local().stop(folder, handle(identity_of(os.getpid()))) is False


def test_a_run_is_held_while_its_lock_is(folder: RunFolder) -> None:
    assert not is_held(folder)
    with folder.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_held(folder)
        fcntl.flock(file, fcntl.LOCK_UN)
        assert not is_held(folder)
