"""A process is known by number and start; all processes of a run are found and ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring.runs.processes import MARK, ProcessIdentity, end_all, identity_of, marked, start_of
from tests.supervised import wait_for


class Nursery:
    """Starts processes that wait, and leaves none behind."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command or ("sleep", "60"), stdout=subprocess.PIPE, start_new_session=True, **options
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def test_an_identity_survives_being_written(nursery: Nursery) -> None:
    own = identity_of(os.getpid())
    assert ProcessIdentity.from_dict(own.to_dict()) == own
    assert own.is_alive
    assert own.is_of_this_host


@pytest.mark.parametrize(
    "values", [{}, {"pid": 1}, {"pid": None, "start": "", "host": "", "boot": ""}]
)
def test_half_an_identity_is_none(values: dict[str, Any]) -> None:
    assert ProcessIdentity.from_dict(values) is None


@pytest.mark.parametrize(
    "other", [{"start": "1"}, {"host": "another"}, {"boot": "earlier"}, {"start": "gone"}]
)
def test_an_equal_pid_of_another_host_or_boot_is_another_process(
    nursery: Nursery, other: dict[str, str]
) -> None:
    process = nursery.start()
    stranger = replace(identity_of(process.pid), **other)
    assert not stranger.is_alive
    stranger.signal(signal.SIGKILL)
    assert process.poll() is None


def test_a_pid_is_reused_only_if_another_process_has_it(nursery: Nursery) -> None:
    process = nursery.start()
    identity = identity_of(process.pid)
    assert not identity.is_pid_reused
    assert replace(identity, start="1").is_pid_reused
    process.kill()
    process.wait()
    assert not identity.is_pid_reused


def test_a_process_that_ended_is_gone_before_anybody_waits_for_it(nursery: Nursery) -> None:
    process = nursery.start()
    identity = identity_of(process.pid)
    assert identity.is_alive
    identity.signal(signal.SIGKILL)
    wait_for(lambda: start_of(process.pid) == "gone", 10)
    assert process.returncode is None  # nobody has waited: it is a zombie
    assert not identity.is_alive
    identity.signal(signal.SIGKILL)


def test_a_name_with_brackets_and_blanks_does_not_mislead(nursery: Nursery, tmp_path: Path) -> None:
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/sleep")
    process = nursery.start(str(odd), "60")
    assert start_of(process.pid).isdigit()


def test_processes_are_found_by_their_mark_or_their_session(
    nursery: Nursery, tmp_path: Path
) -> None:
    mark = str(tmp_path)
    ours = nursery.start(env={**os.environ, MARK: mark})
    unmarked = nursery.start(env={"PATH": os.environ["PATH"]})
    nursery.start(env={**os.environ, MARK: f"{mark}-2"})
    wait_for(lambda: [each.pid for each in marked(mark)] == [ours.pid], 10)
    found = {each.pid for each in marked(mark, frozenset({unmarked.pid}))}
    assert found == {ours.pid, unmarked.pid}


def test_the_caller_is_never_among_its_own_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    assert list(marked(str(tmp_path), frozenset({os.getsid(0)} - {os.getsid(os.getppid())}))) == []


def test_descendants_with_another_environment_and_session_are_ended_too(
    nursery: Nursery, tmp_path: Path
) -> None:
    """A tool may start a process that carries no mark and leads a session of its own."""
    script = "env -i setsid sleep 61 & echo $!; wait"
    root = nursery.start("sh", "-c", script, env={**os.environ, MARK: str(tmp_path)})
    assert root.stdout is not None
    child = identity_of(int(root.stdout.readline()))
    other = nursery.start()
    assert child.is_alive
    assert end_all(str(tmp_path), [root.pid]) == []
    assert not child.is_alive
    assert start_of(root.pid) == "gone"
    assert other.poll() is None


def test_ending_all_processes_of_a_mark_twice_ends_none(tmp_path: Path) -> None:
    assert end_all(str(tmp_path)) == []
