"""Runs one attempt at a run, of any kind, from its lock to its summary.

The same function runs the jobs of worker processes (`jobs/__main__.py`) and of `sparring.train()`,
`evaluate()` and `ship()`. It holds the run's lock while it writes events, from which the
supervisor derives the run's state. In a worker group, rank 0 holds the lock and reports for all
ranks; each rank reports its own failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparring.contracts.errors import SparringError, error_text
from sparring.contracts.summaries import Summary
from sparring.jobs.case_loader import RunCases
from sparring.jobs.worker import Heartbeat, hold_run, report_event
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec, write_summary
from sparring.source_files import refuse_changed_code

if TYPE_CHECKING:
    from sparring.environments.task import Task

FAILED = 100
Kind = TypeVar("Kind", bound=Summary)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a run: its folder, its heartbeat, and the rank of this process.

    `owns_process` tells a worker process, whose signals and heartbeat are the run's, from a Python
    program that runs a job. `accept_changes` permits a resumed run to use changed code or inputs.
    """

    folder: RunFolder
    heartbeat: Heartbeat
    rank: int = 0
    owns_process: bool = False
    accept_changes: bool = False


class Job(Generic[Kind]):
    """The work of one attempt. A kind of run is a subclass, made of an attempt, a spec and a task:
    the class `<Kind>Job` in `jobs/<kind>/job.py`."""

    @property
    def is_stopped(self) -> bool:
        """Whether the work ended early on a stop request, with a summary."""
        return False

    def run(self) -> Kind:
        """Do the work and return the run's summary, which `run_job` writes."""
        raise NotImplementedError


JobMaker = Callable[[Attempt, Any, "Task"], Job[Kind]]


@dataclass(frozen=True, slots=True)
class Ended(Generic[Kind]):
    """How an attempt ended: with its summary, on a stop request or not."""

    summary: Kind
    is_stopped: bool


def run_job(
    attempt: Attempt, task: Task | None = None, make: JobMaker[Kind] | None = None
) -> Ended[Kind]:
    """Run the job that the spec in the run's folder describes, and write its summary.

    Without `task`, the environment that the spec names is opened for it. `make` replaces the class
    of the kind. An error or an interrupt is reported, and raised again.
    """
    folder, is_first = attempt.folder, attempt.rank == 0
    with hold_run(folder) if is_first else nullcontext():
        if attempt.owns_process:
            attempt.heartbeat.begin()
        if is_first:
            report_event(folder, "started", pid=os.getpid(), host=socket.gethostname())
        try:
            with _made(attempt, task, make) as job:
                summary = job.run()
            if is_first:
                write_summary(folder, summary)
        except (KeyboardInterrupt, asyncio.CancelledError):
            if is_first:
                report_event(folder, "stopped")
            raise
        except Exception as error:
            _report_failure(attempt, error)
            raise
        if is_first:
            report_event(folder, "stopped" if job.is_stopped else "completed")
    return Ended(summary, job.is_stopped)


@contextmanager
def _made(attempt: Attempt, task: Task | None, make: JobMaker[Kind] | None) -> Iterator[Job[Kind]]:
    folder, spec = attempt.folder, read_run_spec(attempt.folder)
    if task is not None:
        yield (make or job_of(spec.kind))(attempt, spec, task)
        return
    attempt.heartbeat.note("loading")
    if not attempt.accept_changes:
        refuse_changed_code(folder.id, spec.target, spec.code_digest, spec.code_files)
    cases = RunCases(folder, spec) if spec.reads_cases_apart else None
    make = make or job_of(spec.kind)  # imports torch while another process reads the cases
    from sparring.environments.task import Task
    from sparring.jobs.environment_opening import opened

    with opened(folder, spec, rank=attempt.rank) as environment:
        task = Task.of_environment(
            environment,
            suite=None if cases is None else lambda: cases.suite(environment),
            measure_timeout=spec.play_settings.measure_timeout,
        )
        yield make(attempt, spec, task)


def job_of(kind: str) -> JobMaker[Any]:
    """Import and return the job of a kind of run."""
    module = importlib.import_module(f"sparring.jobs.{kind}.job")
    job: JobMaker[Any] = getattr(module, f"{kind.title()}Job")
    return job


def _report_failure(attempt: Attempt, error: Exception) -> None:
    """Remove partial checkpoints, which may have filled the disk, and report the failure."""
    for partial in attempt.folder.checkpoints.glob(".step-*.partial"):
        shutil.rmtree(partial, ignore_errors=True)
    location = {"rank": attempt.rank} if int(os.environ.get("WORLD_SIZE", 1)) > 1 else {}
    code = error.exit_code if isinstance(error, SparringError) else FAILED
    with contextlib.suppress(OSError):  # the disk may be full
        report_event(
            attempt.folder,
            "failed",
            kind=type(error).__name__,
            message=error_text(error),
            exit_code=code,
            **location,
        )
