"""An evaluation that a spec describes, in a worker's process."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from sparring.contracts.errors import MachineryFailure
from sparring.contracts.specs import EvalSpec
from sparring.environments import Environment
from sparring.environments.environment import read_parts
from sparring.measures import MeasureSet
from sparring.policies.loading import load_policy
from sparring.run_folder import RunFolder
from sparring.worker.cases_apart import CasesOfRun
from sparring.worker.evaluation import Evaluation, EvalWork
from sparring.worker.opening import opened
from sparring.worker.pulse import Pulse


def evaluate_environment(
    folder: RunFolder, spec: EvalSpec, cases: CasesOfRun | None, pulse: Pulse
) -> str:
    """Play and judge. Held-out cases come from the environment itself, all others from `cases`."""
    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.play.unsandboxed
    ) as environment:
        work = _load(spec, environment, cases)
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


def _load(spec: EvalSpec, environment: Environment, cases: CasesOfRun | None) -> EvalWork:
    parts = read_parts(environment, (lambda: cases.suite(environment)) if cases else None)
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
