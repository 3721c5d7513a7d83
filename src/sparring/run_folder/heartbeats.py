"""Where the ranks of a run write their heartbeats.

The ranks of a single host write them to the run's folder. With several hosts, that folder lies on a
file server, so each rank but the first writes to a local folder of its host, and the host reports
all its ranks in one file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sparring.run_folder.files import read_json_or_empty
from sparring.run_folder.layout import RunFolder

LOCAL_HEARTBEATS = "SPARRING_HEARTBEATS"  # the environment variable that names the local folder


def heartbeat_file(folder: RunFolder, rank: int, local: Path | None = None) -> Path:
    """Return the file of one rank's heartbeat; `local` is the local folder, where there is one."""
    if rank == 0 or local is None:  # displays read the first rank's in the run's folder
        return folder.rank_heartbeat(rank)
    return local / f"rank-{rank}.json"


def local_heartbeats() -> Path | None:
    """Return the local folder that the environment of this process names; None without one."""
    name = os.environ.get(LOCAL_HEARTBEATS)
    return Path(name) if name else None


def read_heartbeats(
    folder: RunFolder, ranks: Iterable[int], local: Path | None
) -> dict[int, dict[str, Any]]:
    """Return the last heartbeat of each of these ranks of this host; empty before its first."""
    return {rank: read_json_or_empty(heartbeat_file(folder, rank, local)) for rank in ranks}
