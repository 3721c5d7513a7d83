"""The resource limits of one call in a sandbox."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one call; `disk_bytes` and `files` apply to the whole workspace. `loopback` allows
    IP sockets on a private interface; no limit covers their buffers."""

    wall_seconds: float = 10.0
    cpu_seconds: int = 10
    memory_bytes: int = 512 * MIB
    processes: int = 32
    file_bytes: int = 32 * MIB
    disk_bytes: int = 64 * MIB
    files: int = 4096
    scratch_bytes: int = 16 * MIB
    output_bytes: int = 256 * 1024
    open_files: int = 256
    loopback: bool = False

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name != "loopback" and getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
