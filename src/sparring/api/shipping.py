"""`ship(…)`: what `sparring ship RUN` does, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from sparring.api.options import ShipOptions
from sparring.api.python_runs import open_run, run_here, spec_of
from sparring.api.results import ShipResult
from sparring.api.train_result import TrainingRun, TrainResult
from sparring.contracts.errors import FaultyArtefact, InvalidInput
from sparring.contracts.kinds import QUANTIZATIONS, ShipSpec
from sparring.contracts.summaries import ShipSummary
from sparring.environments.examples import WorkedExample
from sparring.environments.task import AnyAgent, Measures
from sparring.jobs.run_job import Ended
from sparring.player.player import ContextFactory
from sparring.player.sdk_run import UserFunction
from sparring.policies.families import Family
from sparring.run_folder.layout import shipped_name
from sparring.run_folder.proofs import proof_to_ship
from sparring.suites import Suite


def ship(
    run: TrainResult | str | Path,
    to: str | Path | None = None,
    agent: AnyAgent | None = None,
    suite: Suite | None = None,
    measures: Measures | None = None,
    *,
    unproven: bool = False,
    weights: Mapping[str, float] | None = None,
    context: ContextFactory | None = None,
    user: UserFunction | None = None,
    family: Family | str | None = None,
    examples: Sequence[WorkedExample] | None = None,
    runs: str | Path = "runs",
    accept_changes: bool = False,
    show_progress: bool = True,
    **options: Unpack[ShipOptions],
) -> ShipResult:
    """Write the trained model into a new folder: by default as adapter (after LoRA), merged weights
    and GGUF.

    `run` is as in `prove(…)`, and `to` is by default `shipped/NAME-ID`. Only a proved checkpoint is
    shipped, unless `unproven` is set. Each artefact must give the prompts and log-probabilities of
    the checkpoint, or FaultyArtefact is raised, and both play the same cases. A run that was
    started from Python and comes by its id needs its agent, suite and measures.
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
        verb="ship",
    )
    _refuse_unknown(options.get("quantizations", ()))
    checkpoint = options.get("checkpoint", "")
    proof = proof_to_ship(training.folder, checkpoint, is_needed=not unproven)
    place = Path("shipped", shipped_name(training.name, training.folder.id)) if to is None else to
    spec = spec_of(
        ShipSpec,
        {
            **training.spec.fields_of_later_runs(),
            **options,
            "run": training.folder.id,
            "proof": proof.run if proof else "",
            "checkpoint": checkpoint or (Path(proof.checkpoint).name if proof else ""),
            "to": str(Path(place).expanduser().resolve()),
        },
    )
    folder = open_run(training.folder.path.parent, None, spec)
    ended: Ended[ShipSummary] = run_here(
        folder, task, "shipping", accept_changes=accept_changes, show_progress=show_progress
    )
    if ended.summary.verdict == "refused":
        raise FaultyArtefact(ended.summary.problem)
    return ShipResult(folder, ended.summary)


def _refuse_unknown(quantizations: Sequence[str]) -> None:
    if unknown := [each for each in quantizations if each not in QUANTIZATIONS]:
        listed = ", ".join(QUANTIZATIONS)
        raise InvalidInput(f"unknown quantisation {unknown[0][:40]!r}; choose from {listed}")
