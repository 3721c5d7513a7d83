"""Free memory is the least of what the machine and the control groups have left."""

from __future__ import annotations

from pathlib import Path

from sparring.memory import free_memory, memory_groups

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
