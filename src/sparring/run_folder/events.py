"""Appends events to a run's history, and changed runs to the journal that indexes read."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from sparring.run_folder.files import append_line
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
