"""`python -m sparring.jobs RUN_FOLDER`: executes the run that the folder's spec describes."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from sparring.contracts.errors import CasesBroken, SparringError, error_text
from sparring.jobs.run_job import FAILED, Attempt, run_job
from sparring.jobs.worker import Heartbeat, supervised_attempt
from sparring.run_folder import RunFolder

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
    heartbeat = Heartbeat(folder, rank, supervised_attempt())
    try:
        attempt = Attempt(folder, heartbeat, rank, owns_process=True, accept_changes=accept_changes)
        return STOPPED if run_job(attempt).is_stopped else 0
    except (KeyboardInterrupt, asyncio.CancelledError):
        return STOPPED
    except Exception as error:
        message = error_text(error)
        if isinstance(error, CasesBroken):
            message = message.splitlines()[0]  # operators can read the log; the rest quotes cases
        with contextlib.suppress(OSError):  # the disk may be full
            if not isinstance(error, SparringError):
                traceback.print_exc()
            print(message, file=sys.stderr)
        return error.exit_code if isinstance(error, SparringError) else FAILED
    finally:
        heartbeat.end()


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    from sparring.machine import share_machine
    from sparring.sandbox import workspaces

    share_machine()
    code = main(sys.argv[1], accept_changes="--accept-changes" in sys.argv[2:])
    workspaces.remove_all()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a hanging tool thread must not keep the worker alive
