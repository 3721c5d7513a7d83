"""Starting runs that wait, in order, as far as there is room; replacing supervisors that died.

Any operation may do this, and so does every supervisor at its end: there is no daemon. What is
wrong with one run must never keep the others from being looked after.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparring.contracts.errors import LauncherFailed, SparringError
from sparring.run_folder import RunFolder
from sparring.run_folder.events import tell_state
from sparring.run_folder.turns import in_turn
from sparring.runs.claims import newest_epoch
from sparring.runs.history import History, read_history
from sparring.runs.launching import Watched, handle_of, is_watched, launch
from sparring.runs.lifecycle import RunState
from sparring.runs.local import is_held
from sparring.runs.processes import since_boot

if TYPE_CHECKING:
    from sparring.runs.index import Index

_TURN_SECONDS = 5.0
_OFTEN_ENOUGH_SECONDS = 1.0
_MOST_TRIES = 10
_MOST_BACKOFF = 30.0


def reconcile(index: Index) -> None:
    """Bring the index up to date, see that every run that should have a supervisor has one, and
    start what waits."""
    index.refresh()
    active = index.active()
    for row in active:
        if row.state is not RunState.QUEUED:
            with _whatever_it_is(row.id):
                see_to(RunFolder(index.runs / row.id), row.history)
    if any(row.state is RunState.QUEUED for row in active):
        _start_waiting(index)
    index.refresh()


def see_to(folder: RunFolder, history: History) -> None:
    """One run that has not ended: given a supervisor where it lacks one."""
    if history.state is RunState.QUEUED:
        _see_to_waiting(folder, history)
    elif history.is_supervised:
        _replace_supervisor(folder, history)
    elif _has_vanished(folder, history):
        told = {"cause": "killed", "message": "its process ended without a word"}
        _fail(folder, error="RunFailed", **told)


def start_waiting(runs: Path) -> None:
    """Look after all runs of a folder: for a supervisor at its end, which has made room, and for
    whoever waits for a run that waits."""
    from sparring.runs.index import Index  # SQLAlchemy takes a while

    reconcile(Index(runs))


def launch_or_fail(folder: RunFolder, epoch: int) -> None:
    """Start a supervisor of a run; where that does not work, the run has failed."""
    try:
        launch(folder, epoch)
    except (SparringError, OSError) as error:
        _fail(folder, cause="launcher", message=str(error), error=type(error).__name__)
        raise LauncherFailed(f"run {folder.id} could not be started: {error}") from error


# ---------------------------------------------------------------------- inside


def _has_vanished(folder: RunFolder, history: History) -> bool:
    """A run in a process of Python that is no more. Of another host's, nobody here can tell."""
    if history.host not in ("", socket.gethostname()) or is_held(folder):
        return False
    return not read_history(folder).history.state.has_ended  # it may have said so just now


def _replace_supervisor(folder: RunFolder, history: History) -> None:
    epoch = newest_epoch(folder)  # before looking: who comes late is for an epoch that is taken
    if is_watched(folder) is not Watched.NO or _was_just_tried(folder, history):
        return
    if _is_hopeless(folder, epoch + 1):
        return
    with _in_turn(folder.path.parent), contextlib.suppress(OSError):
        if is_watched(folder) is Watched.NO:  # nobody was faster
            launch(folder, epoch + 1)


def _is_hopeless(folder: RunFolder, epoch: int) -> bool:
    """Whether supervisors for that epoch die before they claim it, again and again; the run has
    failed then."""
    handle = handle_of(folder)
    if handle.get("epoch") != epoch or int(handle.get("tries", 0)) < _MOST_TRIES:
        return False
    log = folder.path / "logs" / "supervisor.log"
    _fail(folder, cause="launcher", message=f"its supervisor ends before it begins; see {log}")
    return True


def _was_just_tried(folder: RunFolder, history: History) -> bool:
    """The more often it was in vain, the longer we wait."""
    handle = handle_of(folder)
    in_vain = max(history.takeovers, int(handle.get("tries", 0)))
    pause = min(_MOST_BACKOFF, 0.25 * 2 ** min(in_vain, 7))
    age = since_boot() - float(handle.get("since_boot", float("-inf")))
    return bool(0 <= age < pause)


def _see_to_waiting(folder: RunFolder, history: History) -> None:
    """Whoever looks at a run that waits sees to the queue that it waits in. Looking goes on every
    moment, seeing to the queue once a second."""
    if not history.life:
        return  # it is being made, in a process of Python
    mark = folder.path.parent / ".sparring" / "queue.seen"
    with contextlib.suppress(OSError):
        if abs(time.time() - mark.stat().st_mtime) < _OFTEN_ENOUGH_SECONDS:
            return
    with contextlib.suppress(OSError):
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
    start_waiting(folder.path.parent)


def _start_waiting(index: Index) -> None:
    """In order of waiting. The first that does not fit keeps those behind it waiting, too: else a
    large one would wait for ever."""
    with _in_turn(index.runs):
        index.refresh()
        active = index.active()
        begun = sum(row.state is not RunState.QUEUED for row in active)
        for row in active:
            if row.state is not RunState.QUEUED or not row.history.life:
                continue
            with _whatever_it_is(row.id):
                folder = RunFolder(index.runs / row.id)
                if _waits_for_another(folder, row.history):
                    continue
                if not _begin(folder, row.history, begun):
                    return
            begun += 1


def _waits_for_another(folder: RunFolder, history: History) -> bool:
    """Whether a run that is to follow another cannot begin yet, or never will."""
    name = str(folder.read_spec().get("after") or "")
    if not name or history.is_to_stop:
        return False
    other = RunFolder(folder.path.parent / name)
    if not other.spec.is_file():
        _fail(folder, cause="refused", message=f"the run {name} that it follows is gone")
        return True
    state = read_history(other).history.state
    if state.has_ended and state is not RunState.COMPLETED:
        told = {"message": f"{name} is {state.value}, so that there is nothing to follow it"}
        tell_state(folder, RunState.STOPPED, author="sparring", exit_code=103, **told)
    return state is not RunState.COMPLETED


def _begin(folder: RunFolder, history: History, begun: int) -> bool:
    """Start a run that waits, if there is room; whether those behind it may follow."""
    if history.is_to_stop:
        tell_state(folder, RunState.STOPPED, author="sparring", exit_code=103)
        return True
    epoch = newest_epoch(folder)
    if is_watched(folder, history.queued_epoch) is not Watched.NO:
        return True
    if history.runs_at_once is not None and begun >= history.runs_at_once:
        return False
    if _was_just_tried(folder, history) and handle_of(folder).get("epoch") == epoch + 1:
        return True
    if _is_hopeless(folder, epoch + 1):
        return True
    with contextlib.suppress(LauncherFailed):
        launch_or_fail(folder, epoch + 1)
    return True


def _fail(folder: RunFolder, *, cause: str, message: str, error: str = "LauncherFailed") -> None:
    told = {"cause": cause, "message": message, "error": error, "exit_code": 100}
    tell_state(folder, RunState.FAILED, author="sparring", **told)


@contextmanager
def _whatever_it_is(run: str) -> Iterator[None]:
    """One run that cannot be read, or started, is one run's trouble."""
    try:
        yield
    except Exception as error:
        logging.getLogger(__name__).warning("run %s: %s: %s", run, type(error).__name__, error)


def _in_turn(runs: Path) -> AbstractContextManager[None]:
    """To start something twice does no harm."""
    return in_turn(runs / ".sparring" / "queue.lock", _TURN_SECONDS)
