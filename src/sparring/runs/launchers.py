"""Launchers start the supervisors of runs, and find out whether a run has a live supervisor.

An extra supervisor is harmless: each is started for one epoch, and only the first that claims the
epoch continues. A package adds a launcher with an entry point in the group `sparring.launchers`: a
class that implements `Launcher` and takes no arguments.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol

from sparring.contracts.errors import SettingError
from sparring.installed import load_plugin, plugin_names
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, write_json
from sparring.runs.claims import claimant, newest_epoch
from sparring.runs.processes import (
    ProcessIdentity,
    boot_id,
    identity_of,
    since_boot,
    start_detached,
)

Handle = dict[str, Any]  # what a launcher stores to find its supervisor again


class SupervisorPresence(Enum):
    """Whether a run has a supervisor, as far as this host can tell."""

    YES = "yes"
    NO = "no"
    ELSEWHERE = "elsewhere"  # unknown: this host cannot see its process


class Launcher(Protocol):
    """Starts supervisors in one place, such as this machine or a cluster."""

    def start(self, folder: RunFolder, epoch: int) -> Handle:
        """Start the supervisor of this epoch; returns the handle that `look` and `stop` take."""

    def look(self, folder: RunFolder, handle: Handle, after: int) -> SupervisorPresence:
        """Return whether a supervisor of an epoch after `after` is alive or about to start."""

    def stop(self, folder: RunFolder, handle: Handle) -> bool:
        """Cancel a pending start. Return whether there was one."""


def handle_of(folder: RunFolder) -> Handle:
    """Return the handle of the last started supervisor; empty if there is no valid one."""
    with contextlib.suppress(OSError, ValueError):
        handle = read_json(folder.launch)
        numbers = (handle.get(name, 0) for name in ("since_boot", "time", "epoch", "tries"))
        if all(isinstance(number, int | float) for number in numbers):
            return handle
    return {}


SILENT_SECONDS = 15.0


class Local:
    """Starts supervisors as processes that outlive their parent."""

    def start(self, folder: RunFolder, epoch: int) -> Handle:
        """Start the supervisor; its handle is its process identity."""
        (folder.path / "logs").mkdir(exist_ok=True)  # fails for a run that was deleted
        path = str(folder.path.resolve())
        command = [sys.executable, "-m", "sparring.runs.supervisor", path, str(epoch)]
        process = start_detached(command, folder.path / "logs" / "supervisor.log")
        return identity_of(process.pid).to_dict()

    def look(self, folder: RunFolder, handle: Handle, after: int) -> SupervisorPresence:
        """Check the process that claimed the newest epoch, and the process started last. A process
        without a heartbeat for 15 s is suspended or hung, and counts as dead."""
        newest = newest_epoch(folder)
        holder = claimant(folder, newest) if newest > after else None
        started = ProcessIdentity.from_dict(handle) if int(handle.get("epoch", 0)) > after else None
        for process in (holder, started):
            if process and process.is_alive and self._is_responsive(folder, process, handle):
                return SupervisorPresence.YES
        is_elsewhere = holder is not None and not holder.is_of_this_host
        return SupervisorPresence.ELSEWHERE if is_elsewhere else SupervisorPresence.NO

    def stop(self, folder: RunFolder, handle: Handle) -> bool:  # noqa: ARG002
        """Return False: local starts are never pending. A supervisor reads stop requests itself."""
        return False

    def _is_responsive(self, folder: RunFolder, process: ProcessIdentity, handle: Handle) -> bool:
        is_last = ProcessIdentity.from_dict(handle) == process
        heard_at = float(handle.get("since_boot", 0.0)) if is_last else 0.0
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            beat = read_json(folder.supervisor)
            if beat.get("pid") == process.pid and beat.get("boot") == boot_id():
                heard_at = max(heard_at, float(beat["since_boot"]))
        return since_boot() - heard_at < SILENT_SECONDS


class Manual:
    """Starts no process: a run stays queued until `sparring run supervise` is started for it."""

    def start(self, folder: RunFolder, epoch: int) -> Handle:
        """Return a handle without starting a supervisor."""
        del folder, epoch
        return {"launcher": "manual"}

    def look(self, folder: RunFolder, handle: Handle, after: int) -> SupervisorPresence:
        """Return YES if the process that claimed the newest epoch is alive on this host. Otherwise
        return ELSEWHERE, so that no operation starts another supervisor."""
        del handle
        newest = newest_epoch(folder)
        holder = claimant(folder, newest) if newest > after else None
        is_here = holder is not None and holder.is_alive
        return SupervisorPresence.YES if is_here else SupervisorPresence.ELSEWHERE

    def stop(self, folder: RunFolder, handle: Handle) -> bool:
        """Return whether no supervisor has claimed the run yet, so that it can end at once."""
        del handle
        return newest_epoch(folder) == 0


GROUP = "sparring.launchers"


_BUILT_IN: Mapping[str, tuple[str, str]] = {
    "local": (__name__, "Local"),
    "slurm": ("sparring.runs.slurm", "Slurm"),
    "manual": (__name__, "Manual"),
}


def launcher_of(folder: RunFolder) -> Launcher:
    """Return the launcher that the run's spec names."""
    return launcher_named(
        str((folder.read_spec().get("supervision") or {}).get("launcher", "local"))
    )


def launcher_named(name: str) -> Launcher:
    """Return a built-in launcher, or one that an installed package provides."""
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name]
        make = getattr(importlib.import_module(module), attribute)
    elif (make := load_plugin(GROUP, name)) is None:
        known = ", ".join([*_BUILT_IN, *plugin_names(GROUP)])
        raise SettingError(f"launcher: there is no launcher {name!r}; use one of {known}")
    launcher: Launcher = make()
    return launcher


def launch(folder: RunFolder, epoch: int) -> Handle:
    """Start a supervisor for an epoch; save and return its handle. The handle counts the starts for
    the epoch, so that the queue can give up on supervisors that die before their claim. A start may
    take as long as a scheduler's answer: until then, the handle says that it is under way."""
    launcher, previous = launcher_of(folder), handle_of(folder)
    tries = 1 + (int(previous.get("tries", 0)) if previous.get("epoch") == epoch else 0)
    handle = {"format": 1, **_now(), "epoch": epoch, "tries": tries}
    write_json(folder.launch, {**handle, "is_starting": True})
    try:
        started = launcher.start(folder, epoch)
    except BaseException:
        write_json(folder.launch, handle)
        raise
    handle |= {**_now(), **started}
    write_json(folder.launch, handle)
    return handle


def seconds_since_start(handle: Handle) -> float:
    """Return the age of a handle, which another host may have written. Infinite without a
    handle."""
    if handle.get("boot") not in (None, boot_id()):
        return abs(time.time() - float(handle.get("time", 0.0)))
    return since_boot() - float(handle.get("since_boot", float("-inf")))


def find_supervisor(folder: RunFolder, after: int = 0) -> SupervisorPresence:
    """Return whether a run has a supervisor of an epoch after `after`. For a requeued run, `after`
    excludes supervisors from before the requeue, which may still be alive."""
    return launcher_of(folder).look(folder, handle_of(folder), after)


def _now() -> Handle:
    return {"since_boot": since_boot(), "boot": boot_id(), "time": time.time()}
