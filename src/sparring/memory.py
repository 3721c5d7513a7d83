"""How much memory this machine, or this process's control group, has left. A leaf."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes a huge number where there is no limit


def free_memory(proc: Path = Path("/proc"), root: Path = _ROOT) -> int:
    """Bytes that can still be allocated: the least of what the machine and each of the control
    groups above this process have left. Page cache that can be dropped counts as free."""
    return min([_of_the_machine(proc), *_of_groups(proc, root)])


def memory_groups(proc: Path = Path("/proc"), root: Path = _ROOT) -> list[Path]:
    """The control groups that limit this process, from its own up to the top."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        place = top / path.lstrip("/")
        while place != top:
            found.append(place)
            place = place.parent
        found.append(top)
    return found


def _of_the_machine(proc: Path) -> int:
    for line in _lines(proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return _UNLIMITED


def _of_groups(proc: Path, root: Path) -> list[int]:
    found = []
    for group in memory_groups(proc, root):
        for limit_file, used_file, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _number(group / limit_file), _number(group / used_file)
            if limit is None or used is None or limit >= _UNLIMITED:
                continue
            dropped = _stat(group / "memory.stat", cache)
            found.append(max(0, limit - max(0, used - dropped)))
    return found


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
