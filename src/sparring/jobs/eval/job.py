"""Runs the evaluation that a spec describes, in a worker process."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.specs import EvalSpec
from sparring.environments import Environment
from sparring.environments.environment import read_parts
from sparring.jobs.case_loader import RunCases
from sparring.jobs.environment_opening import opened
from sparring.jobs.eval.evaluation import Evaluation, EvalWork
from sparring.jobs.heartbeat import Heartbeat
from sparring.measures import MeasureSet
from sparring.policies.loading import load_policy
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import candidate_of


def evaluate_environment(
    folder: RunFolder, spec: EvalSpec, cases: RunCases | None, heartbeat: Heartbeat
) -> str:
    """Run the evaluation and return "completed". Held-out cases are read from the environment in
    this process; all other cases come from `cases`."""
    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.play.unsandboxed
    ) as environment:
        work = _load(spec, environment, cases)
        if folder.stop_request.exists():  # requested while the model was loading
            raise KeyboardInterrupt
        evaluation = Evaluation(folder, work)
        heartbeat.watch(evaluation.done)
        heartbeat.note("playing", step=0)
        summary = asyncio.run(_until_stopped(evaluation))
    _refuse_unscored_run(summary)
    return "completed"


async def _until_stopped(evaluation: Evaluation) -> dict[str, Any]:
    """Run the evaluation. SIGTERM and Ctrl-C cancel it; a resumed run keeps logged rollouts."""
    work = asyncio.create_task(evaluation.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    return await work


def _load(spec: EvalSpec, environment: Environment, cases: RunCases | None) -> EvalWork:
    parts = read_parts(environment, (lambda: cases.suite(environment)) if cases else None)
    measures = MeasureSet.of(parts.measures, environment.weights, seconds=spec.play.measure_seconds)
    parts.suite.require(spec.split)  # before the model is loaded, which may take minutes
    own = parts.agent.model if isinstance(parts.agent.model, str) else None
    named = spec.policy.model or (own if spec.policy.kind != "endpoint" else None)
    return EvalWork(
        agent=parts.agent,
        suite=parts.suite,
        measures=measures,
        policy=load_policy(
            spec.policy, parts.agent.model, environment.family, turn_cache=spec.play.turn_cache
        ),
        play=spec.play,
        split=spec.split,
        cases=spec.cases,
        context=parts.world,
        user=parts.user,
        candidate=candidate_of(named) if spec.split is Split.HELD_OUT else "",
    )


def _refuse_unscored_run(summary: dict[str, Any]) -> None:
    """Fail the run with InfrastructureError if every rollout is unscored."""
    if not summary["rollouts"] or summary["unscored"] < summary["rollouts"]:
        return
    measures = sorted(summary["measures"].values(), key=lambda each: -each["broken"])
    reasons = [each["reason"] for measure in measures for each in measure["reasons_for_failing"]]
    broken = reasons if measures and measures[0]["broken"] else []
    causes = [cause["reason"] for cause in summary["causes"]]
    why = (broken or causes or reasons or ["no measure has a weight"])[0]
    raise InfrastructureError(f"none of {summary['rollouts']} rollouts could be scored: {why}")
