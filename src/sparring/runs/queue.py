"""Starts queued runs in order, up to the limit of concurrent runs, and replaces dead supervisors.

There is no daemon: this happens when runs are listed, when a run is queued under a limit, and when
a supervisor ends. A status request does it for its own run, or, if that is queued, for all. An
error in one run does not affect the others.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sparring.contracts.errors import LauncherFailed, SparringError
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.run_folder.files import file_lock
from sparring.runs.claims import is_held, newest_epoch
from sparring.runs.history import History, read_history
from sparring.runs.index import Index
from sparring.runs.launchers import (
    Manual,
    SupervisorPresence,
    find_supervisor,
    handle_of,
    launch,
    launcher_of,
    seconds_since_start,
)
from sparring.runs.lifecycle import RunState

_LOCK_SECONDS = 5.0
_QUEUE_CHECK_SECONDS = 1.0
_MAX_TRIES = 10
_MAX_BACKOFF = 30.0
_START_SECONDS = 40.0  # a launcher may wait this long for its scheduler's answer


def reconcile(index: Index) -> None:
    """Refresh the index, replace dead supervisors, fail unsupervised runs whose process is gone,
    and start queued runs."""
    index.refresh()
    active = index.active()
    for row in active:
        if row.state is not RunState.QUEUED:
            with _warn_on_error(row.id):
                ensure_supervised(RunFolder(index.runs / row.id), row.history)
    if any(row.state is RunState.QUEUED for row in active):
        _start_waiting(index)
    index.refresh()


def ensure_supervised(folder: RunFolder, history: History) -> None:
    """Replace the dead supervisor of a run, or fail an unsupervised run whose process is gone. For
    a queued run, reconcile the whole folder, at most once a second."""
    if history.state is RunState.QUEUED:
        _check_queue(folder, history)
    elif history.is_supervised:
        _replace_supervisor(folder, history)
    elif _has_vanished(folder, history):
        message = "its process ended without reporting a result"
        _fail(folder, cause="killed", message=message, error="RunFailed")


def reconcile_folder(runs: Path) -> None:
    """Reconcile all runs of a folder. Called when a run is queued under a limit, when a supervisor
    ends and frees a slot, and by status requests for a queued run."""
    reconcile(Index(runs))


def launch_or_fail(folder: RunFolder, epoch: int) -> None:
    """Start a supervisor of a run. If the start fails, fail the run and raise LauncherFailed."""
    try:
        launch(folder, epoch)
    except (SparringError, OSError) as error:
        _fail(folder, cause="launcher", message=str(error), error=type(error).__name__)
        raise LauncherFailed(f"run {folder.id} could not be started: {error}") from error


# ---------------------------------------------------------------------- inside


def _has_vanished(folder: RunFolder, history: History) -> bool:
    """Whether an unsupervised run's process is gone. A process on another host counts as alive."""
    if history.host not in ("", socket.gethostname()) or is_held(folder):
        return False
    return not read_history(folder).history.state.has_ended  # it may have just ended


def _replace_supervisor(folder: RunFolder, history: History) -> None:
    epoch = newest_epoch(folder)  # read before the checks: a concurrent start takes epoch + 1
    if find_supervisor(folder) is not SupervisorPresence.NO or _was_just_tried(folder, history):
        return
    if _is_hopeless(folder, epoch + 1):
        return
    with _queue_lock(folder.path.parent), contextlib.suppress(OSError):
        if _was_just_tried(folder, history):  # another process was faster, or is about to be
            return
        if find_supervisor(folder) is SupervisorPresence.NO:
            launch(folder, epoch + 1)


def _is_hopeless(folder: RunFolder, epoch: int) -> bool:
    """Fail the run if `_MAX_TRIES` supervisors were started for this epoch and none claimed it.
    Return whether the run was failed."""
    handle = handle_of(folder)
    if handle.get("epoch") != epoch or int(handle.get("tries", 0)) < _MAX_TRIES:
        return False
    log = folder.path / "logs" / "supervisor.log"
    message = f"its supervisor exited {_MAX_TRIES} times without claiming the run; see {log}"
    _fail(folder, cause="launcher", message=message)
    return True


def _was_just_tried(folder: RunFolder, history: History) -> bool:
    """Whether the last start is too recent to try again, or still under way; the pause doubles with
    each failure."""
    handle = handle_of(folder)
    failed_tries = max(history.takeovers, int(handle.get("tries", 0)))
    pause: float = min(_MAX_BACKOFF, 0.25 * 2 ** min(failed_tries, 7))
    if handle.get("is_starting"):
        pause = _START_SECONDS
    return 0 <= seconds_since_start(handle) < pause


def _check_queue(folder: RunFolder, history: History) -> None:
    """Reconcile the folder at most once a second; status requests may be more frequent."""
    if not history.life:
        return  # a Python process is creating this run, and runs it itself
    mark = folder.path.parent / ".sparring" / "queue.seen"
    with contextlib.suppress(OSError):
        if abs(time.time() - mark.stat().st_mtime) < _QUEUE_CHECK_SECONDS:
            return
    with contextlib.suppress(OSError):
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
    reconcile_folder(folder.path.parent)


def _start_waiting(index: Index) -> None:
    """Start queued runs in order. A run without a free slot blocks the runs behind it; otherwise
    runs with a higher limit could overtake it forever."""
    with _queue_lock(index.runs):
        index.refresh()
        active = index.active()
        started = sum(row.state is not RunState.QUEUED for row in active)
        for row in active:
            if row.state is not RunState.QUEUED or not row.history.life:
                continue
            with _warn_on_error(row.id):
                folder = RunFolder(index.runs / row.id)
                if _is_blocked(folder, row.history):
                    continue
                if not _start_if_free(folder, row.history, started):
                    return
                started += _takes_slot(folder)


def _takes_slot(folder: RunFolder) -> bool:
    """Return whether a run that may start counts as running. A run that waits for somebody to start
    its supervisor does not: nobody knows when that will be."""
    history = read_history(folder).history
    if history.state.has_ended:
        return False
    is_claimed = newest_epoch(folder) > history.queued_epoch
    return is_claimed or not isinstance(launcher_of(folder), Manual)


def _is_blocked(folder: RunFolder, history: History) -> bool:
    """Return whether a run has to wait for the run that its spec names in `after`. Fail the run if
    the other no longer exists; stop it if the other has stopped or failed."""
    name = str(folder.read_spec().get("after") or "")
    if not name or history.is_stop_requested:
        return False
    other = RunFolder(folder.path.parent / name)
    if not other.spec.is_file():
        _fail(folder, cause="refused", message=f"run {name}, which it follows, no longer exists")
        return True
    history = read_history(other).history
    state = history.state
    if state.has_ended and state is not RunState.COMPLETED:
        reason = history.message.partition("\n")[0]
        message = f"run {name}, which it follows, {state.value}{f': {reason}' if reason else ''}"
        append_state(folder, RunState.STOPPED, author="sparring", exit_code=103, message=message)
    return state is not RunState.COMPLETED


def _start_if_free(folder: RunFolder, history: History, started: int) -> bool:
    """Start a queued run if a slot is free. Return whether the runs behind it may start."""
    if history.is_stop_requested:
        append_state(folder, RunState.STOPPED, author="sparring", exit_code=103)
        return True
    epoch = newest_epoch(folder)
    if find_supervisor(folder, history.queued_epoch) is not SupervisorPresence.NO:
        return True
    if history.runs_at_once is not None and started >= history.runs_at_once:
        return False
    if _was_just_tried(folder, history) and handle_of(folder).get("epoch") == epoch + 1:
        return True
    if _is_hopeless(folder, epoch + 1):
        return True
    with contextlib.suppress(LauncherFailed):
        launch_or_fail(folder, epoch + 1)
    return True


def _fail(folder: RunFolder, *, cause: str, message: str, error: str = "LauncherFailed") -> None:
    data = {"cause": cause, "message": message, "error": error, "exit_code": 100}
    append_state(folder, RunState.FAILED, author="sparring", **data)


@contextmanager
def _warn_on_error(run: str) -> Iterator[None]:
    """Log any error of one run as a warning, so that the other runs are still processed."""
    try:
        yield
    except Exception as error:
        logging.getLogger(__name__).warning("run %s: %s: %s", run, type(error).__name__, error)


def _queue_lock(runs: Path) -> AbstractContextManager[None]:
    """Return the queue's lock. After 5 s the caller proceeds without it, because an extra
    supervisor is harmless."""
    return file_lock(runs / ".sparring" / "queue.lock", _LOCK_SECONDS)
