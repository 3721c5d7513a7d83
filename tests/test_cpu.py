"""A computing process shares its machine, and the user's own settings come first."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from sparring.cpu import share_machine

# Frees a block below another one, where glibc would keep it in the heap; prints kept MiB.
PROGRAM = """
import ctypes
from sparring.cpu import share_machine

share_machine()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20


libc.free(libc.malloc(24 << 20))
before = resident()
block = libc.malloc(16 << 20)
ctypes.memset(block, 1, 16 << 20)
above = libc.malloc(512 << 10)
libc.free(block)
print(resident() - before)
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variables of whoever runs the tests, and without torch."""
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that it is restored whatever a test does
    for name in list(os.environ):
        if name.startswith(("MALLOC_", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")):
            monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_threads_sleep_soon_while_they_wait() -> None:
    share_machine()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert 0 < int(os.environ["GOMP_SPINCOUNT"]) < 30_000  # a millisecond is 10,000 to 100,000


def test_a_policy_that_the_user_has_set_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    share_machine()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "GOMP_SPINCOUNT" not in os.environ


def test_a_policy_that_openmp_would_not_read_any_more_is_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    share_machine()
    assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
@pytest.mark.parametrize(
    ("variable", "is_returned"), [({}, True), ({"MALLOC_ARENA_MAX": "4"}, False)]
)
def test_freed_memory_is_returned_unless_the_user_has_set_how(
    variable: dict[str, str], is_returned: bool
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | variable,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (int(ran.stdout) < 8) is is_returned


def test_a_c_library_without_the_call_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    share_machine()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
