"""`python -m sparring.worker RUN_FOLDER`: do the run that is described there.

Facts go to the folder's events, and only while this process holds the run; deciding about
the run's state is not the worker's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from sparring.contracts.errors import InvalidInput, MachineryFailure, SparringError
from sparring.contracts.specs import EvalSpec
from sparring.run_folder import RunFolder
from sparring.worker.evaluation import Evaluation, EvalWork
from sparring.worker.holding import alone, report_event

STOPPED = 103


def main(path: str) -> int:
    folder = RunFolder(Path(path))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        with alone(folder):
            return _attempt(folder)
    except SparringError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _attempt(folder: RunFolder) -> int:
    report_event(folder, "started", pid=os.getpid(), attempt=folder.attempts())
    try:
        summary = _do(folder)
        _refuse_a_run_that_shows_nothing(summary)
    except (KeyboardInterrupt, asyncio.CancelledError):
        report_event(folder, "stopped")
        return STOPPED
    except SparringError as error:
        return _fail(folder, error, str(error), error.exit_code)
    except Exception as error:
        traceback.print_exc()
        return _fail(folder, error, f"{type(error).__name__}: {error}", 100)
    report_event(folder, "completed")
    return 0


def _do(folder: RunFolder) -> dict[str, Any]:
    spec = folder.read_spec()
    if spec.get("kind") != "eval":
        raise InvalidInput(f"{folder.spec} describes a run of kind {spec.get('kind')!r}")
    work = _load(EvalSpec.model_validate(spec))
    return asyncio.run(_until_stopped(Evaluation(folder, work)))


async def _until_stopped(evaluation: Evaluation) -> dict[str, Any]:
    """SIGTERM and Ctrl-C cancel the work; what was logged stays, and the run can resume."""
    work = asyncio.create_task(evaluation.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    return await work


def _load(spec: EvalSpec) -> EvalWork:
    from sparring.environments.environment import load_environment, read_parts
    from sparring.measures import MeasureSet
    from sparring.policies.loading import load_policy

    environment = load_environment(spec.target)
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
        context=environment.context,
    )


def _refuse_a_run_that_shows_nothing(summary: dict[str, Any]) -> None:
    """A table without a single judged rollout must not look like a result to a program."""
    if not summary["rollouts"] or summary["unscored"] < summary["rollouts"]:
        return
    reasons = summary["causes"] or [
        reason
        for measure in summary["measures"].values()
        for reason in measure["reasons_for_failing"]
    ]
    why = reasons[0]["reason"] if reasons else "no measure has a weight"
    raise MachineryFailure(f"none of {summary['rollouts']} rollouts could be scored: {why}")


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _fail(folder: RunFolder, error: Exception, message: str, code: int) -> int:
    print(message, file=sys.stderr)
    report_event(folder, "failed", kind=type(error).__name__, message=message, exit_code=code)
    return code


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a tool that hangs in a thread must not keep the worker alive
