"""What a run's processes write of themselves: events, and the heartbeats of its ranks.

Events are the run's history; changed runs are also noted in the journal that indexes read. On a
single host, the ranks write their heartbeats to the run's folder. With several hosts, that folder
is on a file server, so each rank except rank 0 writes to a local folder of its host, and each
further host reports all its ranks in one file.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sparring.contracts.json import Beat
from sparring.run_folder.files import append_line, read_json_or_empty
from sparring.run_folder.layout import RunFolder

# Other processes act on these events, so they must survive a power loss.
_DURABLE = frozenset({"state", "checkpoint", "completed", "failed", "stopped", "looked"})


def append_event(folder: RunFolder, event: str, *, author: str, **data: Any) -> None:
    """Append one event. Readers rely on the order of the lines; `time` is informational."""
    line = {"format": 1, "event": event, "time": time.time(), "author": author, **data}
    append_line(folder.events, line, durable=event in _DURABLE)


def append_state(folder: RunFolder, state: str, *, author: str, **data: Any) -> None:
    """Append a change of the run's state, and the run's id to the journal."""
    append_event(folder, "state", author=author, state=state, **data)
    note_change(folder)


def note_change(folder: RunFolder) -> None:
    """Append the run's id to the journal. Errors are ignored: indexes also re-read active runs."""
    with contextlib.suppress(OSError):
        append_line(folder.journal, {"run": folder.id})


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
