"""`python -m sparring.worker RUN_FOLDER`: do the run that is described there.

Facts go to the folder's events, and only while this process holds the run; deciding about
the run's state is not the worker's. Of a gang, rank 0 holds the run and speaks for all.
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
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from sparring.contracts.cases import Split
from sparring.contracts.errors import CasesBroken, InvalidInput, SparringError
from sparring.contracts.proof_specs import AuditSpec, CheckSpec, ProveSpec
from sparring.contracts.specs import EvalSpec
from sparring.contracts.training import TrainSpec
from sparring.run_folder import RunFolder
from sparring.source_files import refuse_changed_code
from sparring.worker.cases_apart import CasesOfRun
from sparring.worker.holding import alone, report_event, supervised_attempt
from sparring.worker.pulse import Pulse

STOPPED = 103


def main(path: str, *, accept_changes: bool = False) -> int:
    folder = RunFolder(Path(path))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # rollouts in flight hold several
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # where it hangs, for whoever asks
    rank = int(os.environ.get("RANK", 0))
    holding: AbstractContextManager[None] = alone(folder) if rank == 0 else nullcontext()
    pulse = Pulse(folder, rank, supervised_attempt())
    try:
        with holding:
            pulse.begin()
            if rank == 0:
                report_event(folder, "started", pid=os.getpid(), host=socket.gethostname())
            return _attempt(folder, rank, accept_changes, pulse)
    except SparringError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        pulse.end()


def _attempt(folder: RunFolder, rank: int, accept_changes: bool, pulse: Pulse) -> int:
    """Every rank tells what made it fail; all else is rank 0's to tell."""
    try:
        spec = folder.read_spec()
        if (work := _KINDS.get(spec.get("kind", ""))) is None:
            raise InvalidInput(f"{folder.spec} describes a run of kind {spec.get('kind')!r}")
        pulse.note("loading")
        if not accept_changes:
            refuse_changed_code(folder.id, spec.get("target", ""), spec.get("code_digest", ""))
        ended = work(folder, spec, accept_changes, pulse)
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


# ------------------------------------------------------------------ kinds of runs


def _evaluate(folder: RunFolder, spec_as_read: dict[str, Any], _: bool, pulse: Pulse) -> str:
    spec = EvalSpec.model_validate(spec_as_read)
    cases = None
    if spec.split is not Split.HELD_OUT:
        cases = CasesOfRun(folder, spec, is_unsandboxed=spec.play.unsandboxed)
    from sparring.worker.evaluate_environment import evaluate_environment

    return evaluate_environment(folder, spec, cases, pulse)


def _train(folder: RunFolder, spec_as_read: dict[str, Any], accept: bool, pulse: Pulse) -> str:
    """The cases are read by another process while this one imports what it takes to train."""
    spec = TrainSpec.model_validate(spec_as_read)
    cases = CasesOfRun(folder, spec, is_unsandboxed=spec.settings.unsandboxed)
    from sparring.worker.train_environment import train_environment

    return train_environment(folder, spec, cases, accept_changes=accept, pulse=pulse)


def _check(folder: RunFolder, spec_as_read: dict[str, Any], _: bool, pulse: Pulse) -> str:
    spec = CheckSpec.model_validate(spec_as_read)
    cases = CasesOfRun(folder, spec, is_unsandboxed=spec.settings.unsandboxed)
    from sparring.worker.look_at_environment import check_environment

    return check_environment(folder, spec, cases, pulse)


def _audit(folder: RunFolder, spec_as_read: dict[str, Any], _: bool, pulse: Pulse) -> str:
    spec = AuditSpec.model_validate(spec_as_read)
    cases = CasesOfRun(folder, spec, is_unsandboxed=spec.play.unsandboxed)
    from sparring.worker.look_at_environment import audit_environment

    return audit_environment(folder, spec, cases, pulse)


def _prove(folder: RunFolder, spec: dict[str, Any], _: bool, pulse: Pulse) -> str:
    from sparring.worker.look_at_environment import prove_environment

    return prove_environment(folder, ProveSpec.model_validate(spec), pulse)


# ------------------------------------------------------------------ ending

_KINDS: Mapping[str, Callable[[RunFolder, dict[str, Any], bool, Pulse], str]] = {
    "eval": _evaluate,
    "train": _train,
    "check": _check,
    "audit": _audit,
    "prove": _prove,
}


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _fail(folder: RunFolder, rank: int, error: Exception, message: str, code: int) -> int:
    """What was half written is taken away first: it may be what fills the disk."""
    for partial in folder.checkpoints.glob(".step-*.partial"):
        shutil.rmtree(partial, ignore_errors=True)
    where = {"rank": rank} if int(os.environ.get("WORLD_SIZE", 1)) > 1 else {}
    kind = type(error).__name__
    with contextlib.suppress(OSError):
        report_event(folder, "failed", kind=kind, message=message, exit_code=code, **where)
    if isinstance(error, CasesBroken):
        message = message.splitlines()[0]  # operators read the log
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    from sparring.cpu import share_machine
    from sparring.sandbox import places

    share_machine()
    code = main(sys.argv[1], accept_changes="--accept-changes" in sys.argv[2:])
    places.remove_all()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a tool that hangs in a thread must not keep the worker alive
