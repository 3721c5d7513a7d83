"""Processes are measured with all that they started, and killed by the folder they work in."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparring.sandbox import processes
from sparring.sandbox.command import MIB
from sparring.sandbox.processes import kill_all_in, ticks_at_start, usage_of_tree

SCRATCH = 16 * MIB


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as started:
        yield started
        started.kill()


def test_a_process_is_distinguished_from_a_later_one_by_its_start(
    child: subprocess.Popen[bytes],
) -> None:
    assert ticks_at_start(os.getpid()) == ticks_at_start(os.getpid())
    assert int(ticks_at_start(child.pid)) >= int(ticks_at_start(os.getpid()))
    child.kill()
    child.wait()
    assert ticks_at_start(child.pid) == "gone"


def test_memory_is_measured_only_on_request(child: subprocess.Popen[bytes]) -> None:
    assert usage_of_tree(child.pid, SCRATCH, with_memory=True).memory > 0
    assert usage_of_tree(child.pid, SCRATCH, with_memory=False).memory == 0


def test_a_process_is_measured_with_what_it_started(child: subprocess.Popen[bytes]) -> None:
    alone = usage_of_tree(child.pid, SCRATCH, with_memory=True)
    both = usage_of_tree(os.getpid(), SCRATCH, with_memory=True)
    assert both.memory > alone.memory
    assert both.cpu_seconds > 0
    assert both.cpu_seconds >= alone.cpu_seconds


def test_a_process_that_is_gone_uses_nothing(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert usage_of_tree(child.pid, SCRATCH, with_memory=True) == processes.Usage()


def test_files_without_a_name_are_counted_where_only_a_child_holds_them() -> None:
    before = usage_of_tree(os.getpid(), SCRATCH, with_memory=False).unlinked
    held = os.memfd_create("held")
    os.write(held, bytes(MIB))
    child = subprocess.Popen(["sleep", "60"], pass_fds=(held,))
    os.close(held)
    during = usage_of_tree(os.getpid(), SCRATCH, with_memory=False).unlinked
    child.kill()
    child.wait()
    assert during - before == MIB
    assert usage_of_tree(os.getpid(), SCRATCH, with_memory=False).unlinked == before


def test_a_crowded_scratch_folder_is_found_by_its_size(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = os.statvfs("/tmp")
    size = usage.f_blocks * usage.f_frsize
    monkeypatch.setattr(processes, "_MAX_SCRATCH_FILES", -1)
    assert usage_of_tree(child.pid, size, with_memory=False).has_too_many_files
    assert not usage_of_tree(child.pid, 12345, with_memory=False).has_too_many_files
    monkeypatch.undo()
    monkeypatch.setattr(processes, "_MAX_SCRATCH_FILES", usage.f_files + 1)
    assert not usage_of_tree(child.pid, size, with_memory=False).has_too_many_files


def test_processes_of_a_folder_are_killed_and_those_of_its_neighbours_are_not(
    tmp_path: Path,
) -> None:
    inside, beside = tmp_path / "1", tmp_path / "11"
    for folder in (inside, beside):
        folder.mkdir()
        (folder / "x").touch()
    ours, other = (
        subprocess.Popen(["tail", "-f", str(folder / "x")]) for folder in (inside, beside)
    )
    kill_all_in(inside)
    assert ours.wait(timeout=5) == -9
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_partial_path_is_refused() -> None:
    with pytest.raises(ValueError, match="must be an absolute path"):
        kill_all_in(Path("folder"))
