"""Measures the memory left on this machine and in this process's control groups. A leaf."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # cgroup v1 reports "no limit" as a huge number


def free_memory(proc: Path = Path("/proc"), root: Path = _ROOT) -> int:
    """Return the bytes that this process can still allocate: the minimum over the machine and all
    control groups of this process. Page cache that the kernel can drop counts as free."""
    return min([_free_on_machine(proc), *_free_in_groups(proc, root)])


def memory_groups(proc: Path = Path("/proc"), root: Path = _ROOT) -> list[Path]:
    """Return the folders of this process's memory control groups, innermost first."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    groups: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        group = top / path.lstrip("/")
        while group != top:
            groups.append(group)
            group = group.parent
        groups.append(top)
    return groups


def _free_on_machine(proc: Path) -> int:
    for line in _lines(proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return _UNLIMITED


def _free_in_groups(proc: Path, root: Path) -> list[int]:
    free = []
    for group in memory_groups(proc, root):
        for limit_file, used_file, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _number(group / limit_file), _number(group / used_file)
            if limit is None or used is None or limit >= _UNLIMITED:
                continue
            droppable = _stat(group / "memory.stat", cache)
            free.append(max(0, limit - max(0, used - droppable)))
    return free


def _stat(path: Path, name: str) -> int:
    for line in _lines(path):
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)[:1]).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
