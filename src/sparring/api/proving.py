"""`prove(…)`: what `sparring prove RUN` does, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sparring.api.python_runs import open_run, run_here, spec_of
from sparring.api.results import ProofResult
from sparring.api.train_result import TrainingRun, TrainResult
from sparring.contracts.cases import Split
from sparring.contracts.kinds import ProveSpec
from sparring.contracts.summaries import ProveSummary
from sparring.environments.environment import name_of
from sparring.environments.examples import WorkedExample
from sparring.environments.loading import load_environment
from sparring.environments.task import AnyAgent, Measures
from sparring.jobs.run_job import Ended
from sparring.player.player import ContextFactory
from sparring.player.sdk_run import UserFunction
from sparring.policies.families import Family
from sparring.suites import Suite


def prove(
    run: TrainResult | str | Path,
    agent: AnyAgent | None = None,
    suite: Suite | None = None,
    measures: Measures | None = None,
    *,
    checkpoint: str = "",
    cases: int | None = None,
    rollouts: int = 4,
    split: Split | str = Split.HELD_OUT,
    picked_from: int = 1,
    also: str = "",
    weights: Mapping[str, float] | None = None,
    context: ContextFactory | None = None,
    user: UserFunction | None = None,
    family: Family | str | None = None,
    examples: Sequence[WorkedExample] | None = None,
    runs: str | Path = "runs",
    accept_changes: bool = False,
    show_progress: bool = True,
) -> ProofResult:
    """Play the base and the trained model on the same held-out cases, and compare them.

    `run` is the result of a training, or the id or folder of its run. Its `checkpoint`, by default
    the best, is played. On `also`, the `FILE:NAME` of an environment, it must not get worse.

    A run that was started from Python and comes by its id has no agent, suite and measures: pass
    them as to `train(…)`.
    """
    training = TrainingRun.find(run, Path(runs))
    task = training.task(
        agent,
        suite,
        measures,
        weights=weights,
        context=context,
        user=user,
        family=family,
        examples=examples,
        verb="prove",
    )
    spec = spec_of(
        ProveSpec,
        {
            **training.spec.fields_of_later_runs(),
            "run": training.folder.id,
            "checkpoint": checkpoint,
            "cases": cases,
            "rollouts": rollouts,
            "split": split,
            "picked_from": picked_from,
            "also": also,
            "also_environment": name_of(load_environment(also)) if also else "",
        },
    )
    folder = open_run(training.folder.path.parent, None, spec)
    ended: Ended[ProveSummary] = run_here(
        folder, task, "proving", accept_changes=accept_changes, show_progress=show_progress
    )
    return ProofResult(folder, ended.summary)
