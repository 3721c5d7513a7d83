"""`result.ship(…)`: ships a training run in the calling process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.api.python_runs import attempt_here, open_run
from sparring.contracts.errors import FaultyArtefact, InvalidInput
from sparring.contracts.kinds import ShipSpec
from sparring.contracts.specs import PlaySettings
from sparring.contracts.summaries import ShipSummary
from sparring.contracts.training import TrainSpec
from sparring.environments.task import Task
from sparring.jobs.run_job import Ended, run_job
from sparring.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class ShipResult:
    """The result of a shipment. `summary` has the fields that `sparring ship --json` prints."""

    folder: Path
    summary: ShipSummary

    @property
    def verdict(self) -> str:
        """`equal`, `worse`, `cannot tell`, or `checked` if the artefact played no case."""
        return self.summary.verdict

    def __str__(self) -> str:
        return f"{self.verdict}: {self.summary.sentence}\n{self.folder}"


def ship_training(
    training: RunFolder, to: Path, task: Task | None, options: Mapping[str, Any]
) -> ShipResult:
    """Ship the best checkpoint of a training run in this process, without a proof; `sparring ship`
    includes one. Raises FaultyArtefact if an artefact differs from the checkpoint."""
    spec = TrainSpec.model_validate(training.read_spec())
    if not spec.is_from_python:
        task = None  # the environment's file has it
    elif task is None:
        raise InvalidInput(
            "this run was started from Python, and its suite and measures exist only there: pass "
            "suite=… and the other parts to ship(), as you did to train()"
        )
    fields = PlaySettings.model_fields
    play = PlaySettings(**{name: getattr(spec.settings, name) for name in fields})
    shipment = ShipSpec(
        target=spec.target,
        environment=spec.environment or (task.agent.name if task else ""),
        config=spec.config,
        policy=spec.policy,
        base=spec.policy,
        play=play.model_copy(update={"num_generations": 1}),
        run=training.id,
        to=str(to.expanduser().resolve()),
        **options,
    )
    folder = open_run(training.path.parent, None, shipment, f"ship-{shipment.environment}")
    ended: Ended[ShipSummary] = run_job(attempt_here(folder), task)
    summary = ended.summary
    if summary.verdict == "refused":
        raise FaultyArtefact(summary.problem)
    return ShipResult(Path(summary.to), summary)


def known_names(kind: str, names: Sequence[str], choices: Sequence[str]) -> tuple[str, ...]:
    """Return the names as a tuple. Raises InvalidInput for a name that is not among `choices`."""
    if unknown := [each for each in names if each not in choices]:
        raise InvalidInput(f"unknown {kind} {unknown[0]!r}; there are {', '.join(choices)}")
    return tuple(names)
