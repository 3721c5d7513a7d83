"""Starts supervisors with a run's launcher, and checks whether a run has a live supervisor.

An extra supervisor is harmless: each is started for one epoch, and only the first that claims the
epoch continues.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping

from sparring.contracts.errors import SettingError
from sparring.installed import load_plugin, plugin_names
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.runs.launcher import Handle, Launcher, SupervisorPresence, handle_of
from sparring.runs.processes import boot_id, since_boot

GROUP = "sparring.launchers"
_BUILT_IN: Mapping[str, tuple[str, str]] = {
    "local": ("sparring.runs.local", "Local"),
    "slurm": ("sparring.runs.slurm", "Slurm"),
    "manual": ("sparring.runs.manual", "Manual"),
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
