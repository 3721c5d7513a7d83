"""Runs a job in the process of the test, without a process that reads its cases."""

from __future__ import annotations

from typing import Any

from sparring.environments import load_environment
from sparring.environments.task import Task
from sparring.jobs.run_job import Attempt, Ended, run_job
from sparring.jobs.worker import Heartbeat
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec
from sparring.suites import Suite


def run_here(
    folder: RunFolder,
    *,
    suite: Suite | None = None,
    heartbeat: Heartbeat | None = None,
    owns_process: bool = False,
) -> Ended:
    """Runs one attempt at the run that the folder's spec describes. `suite` stands for the cases
    that another process has read."""
    spec = read_run_spec(folder)
    read: Any = None if suite is None else lambda: suite
    task = Task.of_environment(
        load_environment(spec.target, spec.config),
        suite=read,
        measure_timeout=spec.play_settings.measure_timeout,
    )
    heartbeat = heartbeat or Heartbeat(folder, 0, None)
    try:
        return run_job(Attempt(folder, heartbeat, owns_process=owns_process), task)
    finally:
        heartbeat.end()


def last_event(folder: RunFolder) -> str:
    from sparring.run_folder.files import read_lines

    return str(list(read_lines(folder.events))[-1]["event"])
