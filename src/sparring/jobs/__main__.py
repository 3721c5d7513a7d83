"""`python -m sparring.jobs RUN_FOLDER`: executes the run that the folder's spec describes.

The process holds the run's lock while it writes events, from which the supervisor derives the run's
state. In a worker group, rank 0 holds the lock and reports for all ranks; each rank reports its own
failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import resource
import shutil
import signal
import socket
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NoReturn

from sparring.contracts.errors import CasesBroken, SparringError
from sparring.contracts.kinds import load, run_kind
from sparring.jobs.attempt import Attempt
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.run_lock import hold_run, report_event, supervised_attempt
from sparring.run_folder import RunFolder
from sparring.source_files import refuse_changed_code

STOPPED = 103


def main(path: str, *, accept_changes: bool = False) -> int:
    """Run one attempt and return the exit code of the process."""
    folder = RunFolder(Path(path))
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Every rollout in flight holds several file descriptors.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # to inspect a hung process
    rank = int(os.environ.get("RANK", 0))
    lock: AbstractContextManager[None] = hold_run(folder) if rank == 0 else nullcontext()
    heartbeat = Heartbeat(folder, rank, supervised_attempt())
    try:
        with lock:
            heartbeat.begin()
            if rank == 0:
                report_event(folder, "started", pid=os.getpid(), host=socket.gethostname())
            return _attempt(folder, rank, accept_changes, heartbeat)
    except SparringError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        heartbeat.end()


def _attempt(folder: RunFolder, rank: int, accept_changes: bool, heartbeat: Heartbeat) -> int:
    """Run the job and report how it ended; return the exit code."""
    try:
        spec = folder.read_spec()
        kind = run_kind(str(spec.get("kind")), folder.spec)
        heartbeat.note("loading")
        if not accept_changes:
            digest, files = spec.get("code_digest", ""), spec.get("code_files", {})
            refuse_changed_code(folder.id, spec.get("target", ""), digest, files)
        ended = load(kind.job)(Attempt(folder, spec, heartbeat, accept_changes))
    except (KeyboardInterrupt, asyncio.CancelledError):
        if rank == 0:
            report_event(folder, "stopped")
        return STOPPED
    except SparringError as error:
        return _fail(folder, rank, error, str(error), error.exit_code)
    except Exception as error:
        with contextlib.suppress(OSError):  # the disk may be full
            traceback.print_exc()
        return _fail(folder, rank, error, f"{type(error).__name__}: {error}", 100)
    if rank == 0:
        report_event(folder, ended)
    return 0 if ended == "completed" else STOPPED


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _fail(folder: RunFolder, rank: int, error: Exception, message: str, code: int) -> int:
    """Remove partial checkpoints, which may have filled the disk, and report the failure."""
    for partial in folder.checkpoints.glob(".step-*.partial"):
        shutil.rmtree(partial, ignore_errors=True)
    location = {"rank": rank} if int(os.environ.get("WORLD_SIZE", 1)) > 1 else {}
    kind = type(error).__name__
    with contextlib.suppress(OSError):
        report_event(folder, "failed", kind=kind, message=message, exit_code=code, **location)
    if isinstance(error, CasesBroken):
        message = message.splitlines()[0]  # operators can read the log; later lines may quote cases
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    from sparring.cpu import share_machine
    from sparring.sandbox import workspaces

    share_machine()
    code = main(sys.argv[1], accept_changes="--accept-changes" in sys.argv[2:])
    workspaces.remove_all()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a hanging tool thread must not keep the worker alive
