"""Starting runs that wait, in order, as far as there is room; replacing supervisors that died.

Any operation may do this, and so does every supervisor at its end: there is no daemon.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparring.contracts.errors import LauncherFailed, SparringError
from sparring.run_folder import RunFolder
from sparring.run_folder.events import tell_state
from sparring.runs.history import read_history
from sparring.runs.launching import Watched, is_watched, launch
from sparring.runs.lifecycle import RunState
from sparring.runs.local import is_held

if TYPE_CHECKING:
    from sparring.runs.index import Index, Row

_TURN_SECONDS = 5.0


def reconcile(index: Index) -> None:
    """Bring the index up to date, see that every run that should have a supervisor has one, and
    start what waits."""
    index.refresh()
    active = index.active()
    for row in active:
        if row.state is not RunState.QUEUED:
            see_to(RunFolder(index.runs / row.id), row)
    if any(row.state is RunState.QUEUED for row in active):
        _start_waiting(index)
    index.refresh()


def see_to(folder: RunFolder, row: Row) -> None:
    """One run that has begun: replaced where its supervisor died."""
    if not row.history.is_supervised:
        if not is_held(folder) and not read_history(folder).history.state.has_ended:
            note = "its process ended without a word"
            told = {"cause": "killed", "message": note, "error": "RunFailed", "exit_code": 100}
            tell_state(folder, RunState.FAILED, author="sparring", **told)
    elif is_watched(folder) is Watched.NO:
        with _in_turn(folder.path.parent) as is_our_turn, contextlib.suppress(OSError):
            if is_our_turn and is_watched(folder) is Watched.NO:  # nobody was faster
                launch(folder)


def start_waiting(runs: Path) -> None:
    """For a supervisor at its end, which has made room."""
    from sparring.runs.index import Index  # SQLAlchemy takes a while

    index = Index(runs)
    index.refresh()
    _start_waiting(index)


def _start_waiting(index: Index) -> None:
    """In order of waiting. The first that does not fit keeps those behind it waiting, too: else a
    large one would wait for ever."""
    with _in_turn(index.runs) as is_our_turn:
        if not is_our_turn:
            return
        index.refresh()
        active = index.active()
        waiting = [row for row in active if row.state is RunState.QUEUED and row.history.life]
        begun = sum(row.state is not RunState.QUEUED for row in active)
        for row in waiting:
            most = row.history.runs_at_once
            folder = RunFolder(index.runs / row.id)
            if row.history.is_to_stop:
                tell_state(folder, RunState.STOPPED, author="sparring", exit_code=103)
                continue
            if is_watched(folder) is Watched.NO:
                if most is not None and begun >= most:
                    return
                with contextlib.suppress(LauncherFailed):
                    launch_or_fail(folder)
            begun += 1


def launch_or_fail(folder: RunFolder) -> None:
    """Start the first supervisor of a run; where that does not work, the run has failed."""
    try:
        launch(folder)
    except (SparringError, OSError) as error:
        told = {"cause": "launcher", "error": type(error).__name__, "exit_code": 100}
        tell_state(folder, RunState.FAILED, author="sparring", message=str(error), **told)
        raise LauncherFailed(f"run {folder.id} could not be started: {error}") from error


@contextmanager
def _in_turn(runs: Path) -> Iterator[bool]:
    """Whether this process is the one that starts what waits; another one does it as well."""
    place = runs / ".sparring"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "queue.lock").open("a") as lock:
        deadline = time.monotonic() + _TURN_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    yield False
                    return
                time.sleep(0.02)
        yield True
