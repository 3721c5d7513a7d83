"""One thread enters another mount namespace; the others stay where they are."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparring.sandbox import probe
from sparring.sandbox.spawning import raise_on_failure, spawn_in

may_enter = pytest.mark.skipif(
    os.geteuid() != 0 or not probe().works or not shutil.which("unshare"),
    reason="only root enters a mount namespace",
)
HERE = "/proc/thread-self/ns/mnt"


def namespace_here() -> str:
    return str(Path(HERE).readlink())


@pytest.fixture
def elsewhere() -> Iterator[tuple[int, str]]:
    """A descriptor of another mount namespace, and its name."""
    command = ["unshare", "--mount", "sh", "-c", "echo ready; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        place = Path(f"/proc/{holder.pid}/ns/mnt")
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        yield descriptor, str(place.readlink())
        os.close(descriptor)
        holder.kill()


@may_enter
def test_work_runs_inside_and_this_thread_stays_where_it_is(elsewhere: tuple[int, str]) -> None:
    descriptor, name = elsewhere
    before = namespace_here()
    assert name != before
    assert spawn_in(descriptor, namespace_here) == name
    assert namespace_here() == before


@may_enter
def test_the_spawning_thread_is_the_same_for_all_work_and_comes_home(
    elsewhere: tuple[int, str],
) -> None:
    home = os.open(HERE, os.O_RDONLY | os.O_CLOEXEC)
    first = spawn_in(elsewhere[0], threading.current_thread)
    assert first is not threading.current_thread()
    assert spawn_in(home, lambda: (threading.current_thread(), namespace_here())) == (
        first,
        namespace_here(),
    )
    os.close(home)


@may_enter
def test_work_that_fails_reaches_the_caller_and_ends_nothing_else(
    elsewhere: tuple[int, str],
) -> None:
    def fail() -> None:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        spawn_in(elsewhere[0], fail)
    assert spawn_in(elsewhere[0], lambda: 7) == 7


@may_enter
def test_a_descriptor_that_is_no_namespace_is_refused_before_the_work() -> None:
    done: list[int] = []
    null = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(OSError, match="Invalid argument"):
        spawn_in(null, lambda: done.append(1))
    os.close(null)
    assert done == []


def test_a_failed_call_of_the_c_library_raises_its_reason() -> None:
    raise_on_failure(0)
    ctypes.set_errno(errno.EPERM)
    with pytest.raises(PermissionError) as raised:
        raise_on_failure(-1)
    assert raised.value.errno == errno.EPERM
