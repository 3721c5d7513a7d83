"""What one call in a sandbox may use."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one call; `disk_bytes` and `files` are those of the whole workspace."""

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

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
