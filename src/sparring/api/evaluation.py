"""`evaluate(…)`: evaluation in the calling process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from pydantic import ValidationError

from sparring.api.options import PlayOptions
from sparring.api.python_runs import (
    explain_validation_error,
    fields_of,
    open_run,
    policy_named,
    run_here,
    spec_of,
)
from sparring.api.results import EvalResult
from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput
from sparring.contracts.policies import Policy
from sparring.contracts.specs import EvalSpec, PlaySettings
from sparring.environments.examples import WorkedExample
from sparring.environments.task import AnyAgent, Measures, Task, default_settings, read_task
from sparring.jobs.eval.job import EvalJob
from sparring.jobs.run_job import Attempt
from sparring.player.player import ContextFactory
from sparring.player.sdk_run import UserFunction
from sparring.policies.loading import load_policy
from sparring.suites import Suite


def evaluate(
    agent: AnyAgent,
    suite: Suite | None = None,
    measures: Measures | None = None,
    *,
    model: str | None = None,
    policy: Policy | None = None,
    weights: Mapping[str, float] | None = None,
    split: Split | str = Split.VALIDATION,
    cases: int | None = None,
    context: ContextFactory | None = None,
    user: UserFunction | None = None,
    examples: Sequence[WorkedExample] | None = None,
    runs: str | Path = "runs",
    run: str | None = None,
    show_progress: bool = True,
    **play: Unpack[PlayOptions],
) -> EvalResult:
    """Play the agent on a split of the suite, and judge every rollout.

    `agent` is an agent of the SDK, a function `play(case, session)` that runs any other, or an
    environment, which has the defaults of what is left out. The model is `policy`, else `model` by
    name, or the agent's. A run named `run` is resumed. `play` are fields of `PlaySettings`.
    """
    settings = play_settings(agent, play)
    task = read_task(
        agent,
        suite,
        measures,
        weights=weights,
        context=context,
        user=user,
        examples=examples,
        settings=settings,
    )
    spec = spec_of(
        EvalSpec,
        {
            **fields_of(task),
            "split": split,
            "cases": cases,
            "policy": policy_named(model or getattr(policy, "name", None), settings),
            "play": settings,
        },
    )
    task.suite.require(spec.split)
    kept = spec.play.kv_cache_memory
    policy = policy or load_policy(spec.policy, task.agent.model, task.family, kv_cache_memory=kept)
    folder = open_run(Path(runs), run, spec)

    def job(attempt: Attempt, spec: EvalSpec, task: Task) -> EvalJob:
        folder.stop_request.unlink(missing_ok=True)
        return EvalJob(attempt, spec, task, policy)

    try:
        ended = run_here(folder, task, "playing", make=job, show_progress=show_progress)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(f"stopped; evaluate(…, run={folder.id!r}) resumes it", file=sys.stderr)
        raise KeyboardInterrupt from None
    return EvalResult(folder, ended.summary)


def play_settings(agent: AnyAgent, play: PlayOptions) -> PlaySettings:
    """Return the play settings: an environment's settings, overridden by `play`. As on the command
    line, an environment's `num_generations` and `seed` apply to training only."""
    names = set(PlaySettings.model_fields) - {"num_generations", "seed"}
    own = {name: value for name, value in default_settings(agent).items() if name in names}
    try:
        return PlaySettings(**{**own, **play})
    except ValidationError as error:
        raise InvalidInput(explain_validation_error(error, PlaySettings)) from error
