"""`evaluate(…)`: an evaluation in the calling process, in a script or a notebook."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents import Agent
from pydantic import ValidationError
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Rollout
from sparring.contracts.specs import EvalSpec, PlaySettings, PolicySpec
from sparring.measures import Measure, MeasureSet
from sparring.measures.declaration import Judge
from sparring.player.loops import run_in_own_loop
from sparring.player.player import ContextFactory
from sparring.policies.loading import load_policy
from sparring.run_folder import RunFolder
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog
from sparring.suites import Suite
from sparring.worker.evaluation import Evaluation, EvalWork, OnProgress
from sparring.worker.from_python import agent_digest, explained, open_run, refuse_wrong_kinds
from sparring.worker.holding import alone, report_event
from sparring.worker.playing import Progress

if TYPE_CHECKING:
    from sparring.proofs.proof import Proof


@dataclass(frozen=True, slots=True)
class EvalResult:
    """What an evaluation showed. `summary` is what `sparring eval --json` prints."""

    folder: RunFolder
    summary: Mapping[str, Any]

    @property
    def run(self) -> str:
        return self.folder.id

    def pass_rate(self, measure: str) -> float | None:
        """The share of rollouts that passed a measure; None where it could judge none."""
        judged = self.summary["measures"]
        if measure not in judged:
            raise InvalidInput(f"no measure {measure!r} was judged; there are {', '.join(judged)}")
        rate = judged[measure]["pass_rate"]
        return rate["value"] if rate else None

    def __str__(self) -> str:
        lines = [f"{self.run}: {self.summary['rollouts']} rollouts"]
        for name, measure in self.summary["measures"].items():
            rate = measure["pass_rate"]
            shown = f"{rate['value']:.1%} ({rate['low']:.1%} … {rate['high']:.1%})" if rate else "–"
            lines.append(f"  {name}: {shown}")
        return "\n".join(lines)

    def rollouts(self) -> Iterator[Rollout]:
        """Every rollout, read from disk one at a time."""
        for record in RolloutLog(self.folder.rollouts()).records():
            yield from_record(record)


def evaluate(
    agent: Agent[Any],
    suite: Suite,
    measures: Sequence[Measure | str | Judge],
    *,
    model: str | None = None,
    policy: Policy | None = None,
    weights: Mapping[str, float] | None = None,
    split: Split | str = Split.VALIDATION,
    cases: int | None = None,
    context: ContextFactory | None = None,
    runs: str | Path = "runs",
    run: str | None = None,
    show_progress: bool = True,
    **play: Any,
) -> EvalResult:
    """Play the agent on a split of the suite and judge it.

    The model is `policy`, or loaded from `model`, or from the agent's own model name. `run`
    names the run: a run of that name goes on where it stopped, and without one a new run
    starts. `play` takes the fields of `PlaySettings`: num_generations, temperature,
    max_completion_length, tool_rounds, …
    """
    refuse_wrong_kinds(agent, suite)
    try:
        settings = PlaySettings(**play)
        measure_set = MeasureSet.of(measures, weights, seconds=settings.measure_seconds)
        spec = EvalSpec(
            target=f"(python) {agent.name}",
            split=split,  # type: ignore[arg-type]
            cases=cases,
            policy=PolicySpec(model=model or getattr(policy, "name", None)),
            play=settings,
            measures=dict(measure_set.weights),
            code_digest=agent_digest(agent),
        )
    except ValidationError as error:
        raise InvalidInput(explained(error, PlaySettings)) from error
    side = spec.split
    suite.require(side)
    folder = open_run(Path(runs), run, spec, agent.name)
    folder.stop_request.unlink(missing_ok=True)
    work = EvalWork(
        agent=agent,
        suite=suite,
        measures=measure_set,
        policy=policy or load_policy(PolicySpec(model=model), agent.model),
        play=settings,
        split=side,
        cases=cases,
        context=context,
    )
    with alone(folder), _ProgressBar(show_progress) as on_progress:
        report_event(folder, "started", pid=os.getpid(), host=socket.gethostname())
        try:
            summary = run_in_own_loop(Evaluation(folder, work, on_progress).run())
        except (KeyboardInterrupt, asyncio.CancelledError):
            report_event(folder, "stopped")
            print(f"stopped; evaluate(…, run={folder.id!r}) goes on with it", file=sys.stderr)
            raise KeyboardInterrupt from None
        except Exception as error:
            report_event(folder, "failed", kind=type(error).__name__, message=str(error))
            raise
        report_event(folder, "completed")
    return EvalResult(folder, summary)


def prove(before: EvalResult, after: EvalResult, *, picked_from: int = 1) -> Proof:
    """Whether `after` is better than `before`, on cases that both have played, by one interval
    over cases. `picked_from` is among how many candidates it was picked on these very cases."""
    from sparring.proofs.proof import Played  # scipy is for those who prove
    from sparring.proofs.proof import prove as paired

    for each in (before, after):
        if not isinstance(each, EvalResult):
            raise InvalidInput(
                f"prove() takes two evaluations, not {type(each).__name__}; of a training, pass "
                "evaluate(…, policy=result.policy)"
            )
    played = Played(list(before.rollouts()), list(after.rollouts()))
    return paired(played, chances=picked_from)


class _ProgressBar:
    """A bar on a terminal or in a notebook; nothing where nobody looks."""

    def __init__(self, wanted: bool) -> None:
        looking = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._bar: Bar | None = None
        if wanted and looking:
            self._bar = Bar(
                TextColumn("playing"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[passed]}"),
                TimeRemainingColumn(),
            )

    def __enter__(self) -> OnProgress | None:
        if self._bar is None:
            return None
        bar = self._bar
        bar.start()
        task = bar.add_task("playing", total=None, passed="")

        def show(progress: Progress) -> None:
            bar.update(
                task,
                total=progress.total,
                completed=progress.rollouts,
                passed=f"{progress.passed} fully passed",
            )

        return show

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
