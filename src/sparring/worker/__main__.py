"""`python -m sparring.worker RUN_FOLDER`: do the run that is described there.

Facts go to the folder's events; deciding about the run's state is not the worker's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path

from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.specs import EvalSpec
from sparring.run_folder import RunFolder
from sparring.worker.evaluation import Evaluation, EvalWork
from sparring.worker.holding import alone, report_event

STOPPED = 103


def main(path: str) -> int:
    folder = RunFolder(Path(path))
    try:
        with alone(folder):
            report_event(folder, "started", pid=os.getpid(), attempt=folder.attempts())
            asyncio.run(_until_stopped(folder))
    except asyncio.CancelledError:
        report_event(folder, "stopped")
        return STOPPED
    except SparringError as error:
        return _fail(folder, error, str(error), error.exit_code)
    except Exception as error:
        traceback.print_exc()
        return _fail(folder, error, f"{type(error).__name__}: {error}", 100)
    report_event(folder, "completed")
    return 0


async def _until_stopped(folder: RunFolder) -> None:
    """SIGTERM and Ctrl-C cancel the work; what was logged stays, and the run can resume."""
    work = asyncio.create_task(_work(folder))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    await work


async def _work(folder: RunFolder) -> None:
    spec = folder.read_spec()
    if spec.get("kind") != "eval":
        raise InvalidInput(f"{folder.spec} describes a run of kind {spec.get('kind')!r}")
    await Evaluation(folder, _load(EvalSpec.model_validate(spec))).run()


def _load(spec: EvalSpec) -> EvalWork:
    from sparring.environments.environment import load_environment
    from sparring.measures import MeasureSet
    from sparring.policies.loading import load_policy

    environment = load_environment(spec.target)
    agent = environment.agent()
    measures = MeasureSet.of(
        environment.measures, environment.weights, seconds=spec.play.measure_seconds
    )
    suite = environment.suite()
    suite.require(spec.split)  # before a model is loaded for minutes
    return EvalWork(
        agent=agent,
        suite=suite,
        measures=measures,
        policy=load_policy(spec.policy, agent.model, environment.family),
        play=spec.play,
        split=spec.split,
        cases=spec.cases,
        context=environment.context,
    )


def _fail(folder: RunFolder, error: Exception, message: str, code: int) -> int:
    print(message, file=sys.stderr)
    report_event(folder, "failed", kind=type(error).__name__, message=message, exit_code=code)
    return code


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a tool that hangs in a thread must not keep the worker alive
