"""The heartbeat files of a run's ranks.

On a single host, the ranks write them to the run's folder. With several hosts, that folder is on a
file server, so each rank except rank 0 writes to a local folder of its host, and each further host
reports all its ranks in one file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sparring.contracts.json import Beat
from sparring.run_folder.files import read_json_or_empty
from sparring.run_folder.layout import RunFolder

LOCAL_HEARTBEATS = "SPARRING_HEARTBEATS"  # the environment variable that names the local folder


def heartbeat_file(folder: RunFolder, rank: int, local: Path | None = None) -> Path:
    """Return the file of one rank's heartbeat; `local` is the local folder, if there is one."""
    if rank == 0 or local is None:  # displays read rank 0's heartbeat in the run's folder
        return folder.rank_heartbeat(rank)
    return local / f"rank-{rank}.json"


def local_heartbeats() -> Path | None:
    """Return the folder that `SPARRING_HEARTBEATS` names; None if it is not set."""
    name = os.environ.get(LOCAL_HEARTBEATS)
    return Path(name) if name else None


def read_heartbeats(folder: RunFolder, ranks: Iterable[int], local: Path | None) -> dict[int, Beat]:
    """Return the last heartbeat of each rank in `ranks`; an empty one before its first."""
    return {rank: read_json_or_empty(heartbeat_file(folder, rank, local)) for rank in ranks}
