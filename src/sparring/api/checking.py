"""`check(…)` and `audit(…)`: what `sparring check` and `sparring audit` do, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from sparring.api.evaluation import play_settings
from sparring.api.options import LearnOptions, PlayOptions, ServerOptions
from sparring.api.python_runs import (
    fields_of,
    open_run,
    policy_named,
    run_here,
    spec_of,
    train_settings,
)
from sparring.api.results import AuditResult, CheckResult
from sparring.contracts.kinds import AuditSpec, CheckSpec
from sparring.contracts.summaries import AuditSummary, CheckSummary
from sparring.environments.examples import WorkedExample
from sparring.environments.task import AnyAgent, Measures, default_settings, read_task
from sparring.jobs.run_job import Ended
from sparring.player.player import ContextFactory
from sparring.player.sdk_run import UserFunction
from sparring.policies.families import Family
from sparring.suites import Suite


def check(
    agent: AnyAgent,
    suite: Suite | None = None,
    measures: Measures | None = None,
    *,
    model: str | None = None,
    cases: int = 12,
    rollouts: int = 16,
    others: Sequence[ServerOptions] = (),
    other_cases: int = 3,
    minutes: float = 10.0,
    dry_steps: int = 2,
    price_per_hour: float | None = None,
    weights: Mapping[str, float] | None = None,
    context: ContextFactory | None = None,
    user: UserFunction | None = None,
    family: Family | str | None = None,
    examples: Sequence[WorkedExample] | None = None,
    runs: str | Path = "runs",
    show_progress: bool = True,
    **settings: Unpack[LearnOptions],
) -> CheckResult:
    """Check whether the task can be learned, before training on it.

    The model plays `cases` training cases, `rollouts` times each, for at most `minutes`; `others`
    are models behind servers that play `other_cases`. The measures are audited. `dry_steps`
    training steps are run and discarded, from which the time of the training is estimated.

    `agent`, `suite`, `measures` and `settings` are those of the planned `train(…)`.
    """
    planned = train_settings({**default_settings(agent), **settings})
    task = read_task(
        agent,
        suite,
        measures,
        weights=weights,
        context=context,
        user=user,
        family=family,
        examples=examples,
        settings=planned,
    )
    spec = spec_of(
        CheckSpec,
        {
            **fields_of(task),
            "policy": policy_named(model, planned),
            "settings": planned,
            "cases": cases,
            "rollouts": rollouts,
            "others": others,
            "other_cases": other_cases,
            "minutes": minutes,
            "dry_steps": dry_steps,
            "price_per_hour": price_per_hour,
        },
    )
    folder = open_run(Path(runs), None, spec)
    ended: Ended[CheckSummary] = run_here(folder, task, "checking", show_progress=show_progress)
    return CheckResult(folder, ended.summary)


def audit(
    agent: AnyAgent,
    suite: Suite | None = None,
    measures: Measures | None = None,
    *,
    cases: int = 8,
    weights: Mapping[str, float] | None = None,
    context: ContextFactory | None = None,
    examples: Sequence[WorkedExample] | None = None,
    runs: str | Path = "runs",
    show_progress: bool = True,
    **play: Unpack[PlayOptions],
) -> AuditResult:
    """Audit the measures with null players, which give fixed answers to `cases` training cases.

    No model is loaded. A measure that passes an empty or constant answer rewards doing nothing.
    """
    settings = play_settings(agent, play)
    task = read_task(
        agent,
        suite,
        measures,
        weights=weights,
        context=context,
        examples=examples,
        settings=settings,
    )
    spec = spec_of(AuditSpec, {**fields_of(task), "play": settings, "cases": cases})
    folder = open_run(Path(runs), None, spec)
    ended: Ended[AuditSummary] = run_here(folder, task, "auditing", show_progress=show_progress)
    return AuditResult(folder, ended.summary)
