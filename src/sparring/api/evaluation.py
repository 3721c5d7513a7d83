"""`evaluate(…)` and `prove(…)`: evaluation and proof in the calling process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from pydantic import ValidationError
from rich.progress import TimeRemainingColumn

from sparring.api.options import PlayOptions
from sparring.api.python_runs import attempt_here, explain_validation_error, open_run, progress_bar
from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Rollout
from sparring.contracts.specs import EvalSpec, PlaySettings, PolicySpec, python_target
from sparring.contracts.summaries import EvalSummary, Proof
from sparring.environments.examples import WorkedExample
from sparring.environments.task import AnyAgent, Measures, Task, default_settings, read_task
from sparring.jobs.eval.job import EvalJob
from sparring.jobs.run_job import Attempt, run_job
from sparring.jobs.worker import Progress
from sparring.player.player import ContextFactory
from sparring.player.sdk_run import UserFunction
from sparring.policies.loading import load_policy
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_lines
from sparring.run_folder.held_out_ledger import record_look
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog
from sparring.suites import Suite


@dataclass(frozen=True, slots=True)
class EvalResult:
    """The result of an evaluation. `summary` has the fields that `sparring eval --json` prints."""

    folder: RunFolder
    summary: EvalSummary

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.folder.id

    def pass_rate(self, measure: str) -> float | None:
        """Return the share of judged rollouts that passed a measure; None if none was judged."""
        judged = self.summary.measures
        if measure not in judged:
            raise InvalidInput(f"there is no measure {measure!r}; there are {', '.join(judged)}")
        rate = judged[measure].pass_rate
        return rate.value if rate else None

    def __str__(self) -> str:
        lines = [f"{self.run}: {self.summary.rollouts} rollouts"]
        for name, measure in self.summary.measures.items():
            rate = measure.pass_rate
            shown = f"{rate.value:.1%} ({rate.low:.1%} … {rate.high:.1%})" if rate else "–"
            lines.append(f"  {name}: {shown}")
        return "\n".join(lines)

    def rollouts(self) -> Iterator[Rollout]:
        """Yield every rollout, read from disk one at a time."""
        for record in RolloutLog(self.folder.rollouts()).records():
            yield from_record(record)


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

    `agent` is an agent of the SDK, a function `play(case, session)` that runs any other agent, or
    an environment. An environment provides the defaults of suite, measures, weights, context,
    user, examples and settings.

    The model is `policy`, else loaded from the name `model` or the agent's model name. A run named
    `run` is resumed if it exists. `play` takes the fields of `PlaySettings`.
    """
    settings = _settings_of(agent, play)
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
    spec = _spec_of(task, model or getattr(policy, "name", None), split, cases, settings)
    task.suite.require(spec.split)
    kept = spec.play.kv_cache_memory
    policy = policy or load_policy(spec.policy, task.agent.model, task.family, kv_cache_memory=kept)
    folder = open_run(Path(runs), run, spec, task.agent.name)
    with progress_bar("playing", TimeRemainingColumn(), is_wanted=show_progress) as bar:
        shown = bar.add_task("playing", total=None, note="")

        def show(progress: Progress) -> None:
            passed = f"{progress.passed} fully passed"
            bar.update(shown, total=progress.total, completed=progress.rollouts, note=passed)

        def job(attempt: Attempt, spec: EvalSpec, task: Task) -> EvalJob:
            folder.stop_request.unlink(missing_ok=True)
            return EvalJob(attempt, spec, task, policy, show)

        try:
            ended = run_job(attempt_here(folder), task, job)
        except (KeyboardInterrupt, asyncio.CancelledError):
            print(f"stopped; evaluate(…, run={folder.id!r}) resumes it", file=sys.stderr)
            raise KeyboardInterrupt from None
    return EvalResult(folder, ended.summary)


def _settings_of(agent: AnyAgent, play: PlayOptions) -> PlaySettings:
    """Return the play settings: an environment's settings, overridden by `play`. As on the command
    line, an environment's `num_generations` and `seed` apply to training only."""
    names = set(PlaySettings.model_fields) - {"num_generations", "seed"}
    own = {name: value for name, value in default_settings(agent).items() if name in names}
    try:
        return PlaySettings(**{**own, **play})
    except ValidationError as error:
        raise InvalidInput(explain_validation_error(error, PlaySettings)) from error


def _spec_of(
    task: Task,
    model: str | None,
    split: Split | str,
    cases: int | None,
    settings: PlaySettings,
) -> EvalSpec:
    try:
        return EvalSpec(
            target=python_target(task.agent.name),
            split=split,  # type: ignore[arg-type]
            cases=cases,
            policy=PolicySpec(
                model=model,
                thinking=settings.thinking,
                history_thinking=settings.history_thinking,
            ),
            play=settings,
            measures=dict(task.measures.weights),
            code_digest=task.digest,
        )
    except ValidationError as error:
        raise InvalidInput(explain_validation_error(error, PlaySettings)) from error


def prove(before: EvalResult, after: EvalResult, *, picked_from: int = 1) -> Proof:
    """Test whether `after` is better than `before` on the cases that both have played.

    The interval is paired by case, and corrected for the number of candidates that were measured
    on these cases in the same runs folder, including `after`. If there were more candidates, pass
    their number as `picked_from`.
    """
    from sparring.proofs.proof import PlayedSides  # imports scipy, which only proofs need
    from sparring.proofs.proof import prove as paired

    for each in (before, after):
        if not isinstance(each, EvalResult):
            raise InvalidInput(
                f"prove() takes two evaluations, not {type(each).__name__}; for a training run, "
                "pass evaluate(…, policy=result.policy)"
            )
    played = PlayedSides(list(before.rollouts()), list(after.rollouts()))
    events = read_lines(after.folder.events)
    digests = [event["looked_at"] for event in events if "looked_at" in event]
    candidates = record_look(after.folder, digests[-1], after.run) if digests else 1
    return paired(played, chances=max(picked_from, candidates))
