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
from typing import TYPE_CHECKING, Any, NoReturn

from sparring.contracts.errors import InvalidInput, MachineryFailure, SparringError
from sparring.contracts.specs import EvalSpec
from sparring.contracts.training import TrainSpec
from sparring.run_folder import RunFolder
from sparring.source_files import refuse_changed_code
from sparring.worker.cases_apart import CasesApart
from sparring.worker.holding import alone, report_event, supervised_attempt
from sparring.worker.pulse import Pulse

if TYPE_CHECKING:
    from sparring.environments import Environment
    from sparring.worker.evaluation import Evaluation, EvalWork

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


# ------------------------------------------------------------------ eval


def _evaluate(
    folder: RunFolder, spec_as_read: dict[str, Any], accept_changes: bool, pulse: Pulse
) -> str:
    from sparring.worker.evaluation import Evaluation
    from sparring.worker.opening import opened

    pulse.note("loading")
    spec = EvalSpec.model_validate(spec_as_read)
    if not accept_changes:
        refuse_changed_code(folder.id, spec.target, spec.code_digest)
    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.play.unsandboxed
    ) as environment:
        work = _load_evaluation(spec, environment)
        if folder.stop_request.exists():  # asked while the model was loading
            raise KeyboardInterrupt
        evaluation = Evaluation(folder, work)
        pulse.watch(evaluation.done)
        pulse.note("playing", step=0)
        summary = asyncio.run(_until_stopped(evaluation))
    _refuse_a_run_that_shows_nothing(summary)
    return "completed"


async def _until_stopped(evaluation: Evaluation) -> dict[str, Any]:
    """SIGTERM and Ctrl-C cancel the work; what was logged stays, and the run can resume."""
    work = asyncio.create_task(evaluation.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    return await work


def _load_evaluation(spec: EvalSpec, environment: Environment) -> EvalWork:
    from sparring.environments.environment import read_parts
    from sparring.measures import MeasureSet
    from sparring.policies.loading import load_policy
    from sparring.worker.evaluation import EvalWork

    parts = read_parts(environment)
    measures = MeasureSet.of(parts.measures, environment.weights, seconds=spec.play.measure_seconds)
    parts.suite.require(spec.split)  # before a model is loaded for minutes
    return EvalWork(
        agent=parts.agent,
        suite=parts.suite,
        measures=measures,
        policy=load_policy(spec.policy, parts.agent.model, environment.family),
        play=spec.play,
        split=spec.split,
        cases=spec.cases,
        context=parts.world,
    )


def _refuse_a_run_that_shows_nothing(summary: dict[str, Any]) -> None:
    """A table without a single judged rollout must not look like a result to a program."""
    if not summary["rollouts"] or summary["unscored"] < summary["rollouts"]:
        return
    judged = [
        reason["reason"]
        for measure in summary["measures"].values()
        for reason in measure["reasons_for_failing"]
    ]
    broken = [reason for reason in judged if "the measure broke" in reason]
    causes = [cause["reason"] for cause in summary["causes"]]
    why = (broken or causes or judged or ["no measure has a weight"])[0]
    raise MachineryFailure(f"none of {summary['rollouts']} rollouts could be scored: {why}")


# ------------------------------------------------------------------ train


def _train(
    folder: RunFolder, spec_as_read: dict[str, Any], accept_changes: bool, pulse: Pulse
) -> str:
    """The cases are read by another process while this one imports what it takes to train."""
    pulse.note("loading")
    spec = TrainSpec.model_validate(spec_as_read)
    if not accept_changes:
        refuse_changed_code(folder.id, spec.target, spec.code_digest)
    cases = None
    if not spec.services:
        cases = CasesApart(spec.target, spec.config, is_unsandboxed=spec.settings.unsandboxed)
    from sparring.worker.train_environment import train_environment

    return train_environment(folder, spec, cases, accept_changes=accept_changes, pulse=pulse)


# ------------------------------------------------------------------ ending

_KINDS: Mapping[str, Callable[[RunFolder, dict[str, Any], bool, Pulse], str]] = {
    "eval": _evaluate,
    "train": _train,
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
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    from sparring.sandbox import places

    code = main(sys.argv[1], accept_changes="--accept-changes" in sys.argv[2:])
    places.remove_all()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a tool that hangs in a thread must not keep the worker alive
