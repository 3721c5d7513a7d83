"""A process shares its machine, whose user comes first; free memory is the least that is left."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from sparring.machine import free_memory, memory_groups, share_machine

# Frees a block below another one, where glibc would keep it in the heap; prints kept MiB.
PROGRAM = """
import ctypes
from sparring.machine import share_machine

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


GIB = 1 << 30


def machine(place: Path, *, free: int, group: str) -> Path:
    proc = place / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {free // 1024} kB\n")
    (proc / "self" / "cgroup").write_text(group)
    return proc


def group(place: Path, **files: object) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (place / name.replace("__", ".")).write_text(f"{value}\n")


def test_without_groups_it_is_what_the_machine_has(tmp_path):
    proc = machine(tmp_path, free=5 * GIB, group="")
    assert free_memory(proc, tmp_path / "cgroup") == 5 * GIB


def test_a_group_of_version_2_limits_it_and_cache_that_can_go_counts_as_free(tmp_path):
    proc = machine(tmp_path, free=20 * GIB, group="0::/work/run\n")
    root = tmp_path / "cgroup"
    group(root / "work" / "run", memory__max="max", memory__current=GIB)
    group(root / "work", memory__max=3 * GIB, memory__current=2 * GIB,
          memory__stat=f"anon 7\ninactive_file {GIB // 2}")  # fmt: skip
    assert free_memory(proc, root) == 3 * GIB // 2


def test_a_group_of_version_1_limits_it(tmp_path):
    proc = machine(tmp_path, free=20 * GIB, group="4:memory:/run\n3:cpu:/other\n")
    root = tmp_path / "cgroup"
    group(root / "memory" / "run", memory__limit_in_bytes=2 * GIB, memory__usage_in_bytes=GIB,
          memory__stat=f"total_inactive_file {GIB // 4}")  # fmt: skip
    group(root / "memory", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=0)
    assert free_memory(proc, root) == 5 * GIB // 4
    assert memory_groups(proc, root) == [root / "memory" / "run", root / "memory"]


def test_a_group_that_is_over_its_limit_has_nothing_left(tmp_path):
    proc = machine(tmp_path, free=20 * GIB, group="0::/run\n")
    root = tmp_path / "cgroup"
    group(root / "run", memory__max=GIB, memory__current=2 * GIB)
    assert free_memory(proc, root) == 0
