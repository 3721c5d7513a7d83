"""Writing into a run's history: what happened, who says so, and that there is news."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from sparring.run_folder.files import append_line
from sparring.run_folder.layout import RunFolder


def tell(folder: RunFolder, event: str, *, author: str, **data: Any) -> None:
    """Append one event. The file's order is the order of things; the time is for people."""
    told = {"format": 1, "event": event, "time": time.time(), "author": author, **data}
    append_line(folder.events, told)


def tell_state(folder: RunFolder, state: str, *, author: str, **data: Any) -> None:
    """A move of the run's state, and a word to whoever keeps an index."""
    tell(folder, "state", author=author, state=state, **data)
    note_news(folder)


def note_news(folder: RunFolder) -> None:
    """An index that misses the word looks again where a run is still active."""
    with contextlib.suppress(OSError):
        append_line(folder.journal, {"run": folder.id})
