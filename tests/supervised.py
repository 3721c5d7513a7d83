"""Runs under a real supervisor, for tests: started, waited for, looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil

from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.runs.claims import newest_epoch
from sparring.runs.history import History, read_history
from sparring.runs.launchers import launch
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import marked
from sparring.runs.worker_group import mark_of


def start(folder: RunFolder, **queued: Any) -> RunFolder:
    """Into the queue, and a supervisor for it."""
    append_state(folder, RunState.QUEUED, author="test", **queued)
    launch(folder, newest_epoch(folder) + 1)
    return folder


def wait_for(what: Callable[[], Any], seconds: float = 240) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def history(folder: RunFolder) -> History:
    return read_history(folder).history


def ended(folder: RunFolder, seconds: float = 240) -> History:
    """The history of a run that came to its end."""
    wait_for(lambda: history(folder).state.has_ended, seconds)
    return history(folder)


def completed(folder: RunFolder, seconds: float = 240) -> RunFolder:
    found = ended(folder, seconds)
    logs = sorted((folder.path / "logs").rglob("*.log"))
    ends = "\n".join(f"{log.name}:\n{log.read_text()[-1500:]}" for log in logs)
    assert found.state is RunState.COMPLETED, f"{found.cause} {found.message}\n{ends}"
    return folder


def ranks_of(folder: RunFolder) -> list[psutil.Process]:
    """By rank."""
    found = [each for each in marked(mark_of(folder)) if "sparring.jobs" in each.cmdline()]
    return sorted(found, key=lambda each: int(each.environ().get("RANK", 0)))
