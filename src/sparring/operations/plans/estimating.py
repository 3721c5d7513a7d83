"""What a training would take, from what a check or an earlier training of it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from sparring.contracts.proof_specs import CheckSpec
from sparring.contracts.specs import EvalSpec, Frozen
from sparring.contracts.training import TrainSpec
from sparring.operations.budgets import most_rollouts, rollouts_of_a_step
from sparring.operations.operation import Caller
from sparring.operations.settling import Settled
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_told
from sparring.runs.index import Index, Query
from sparring.runs.lifecycle import RunState
from sparring.runs.status import recent_rows

_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Done:
    """A run that was completed."""

    kind: str
    folder: RunFolder


class Cost(Frozen):
    """How much a run would be."""

    steps: int | None = Field(default=None, description="none: as many as one pass takes")
    rollouts: int | None = Field(default=None, description="that it learns from, or plays")
    rollouts_at_most: int | None = Field(
        default=None, description="with groups replaced that teach nothing, and validation"
    )
    hours: float | None = Field(
        default=None, description="of the steps alone, estimated; none where nobody knows"
    )
    basis: str = ""


def cost_of(spec: TrainSpec | EvalSpec, before: Sequence[Done]) -> Cost:
    """By what was done `before`."""
    most = most_rollouts(spec)
    if isinstance(spec, EvalSpec):
        return Cost(rollouts=most, rollouts_at_most=most, basis="cases x rollouts")
    steps, each = spec.settings.max_steps, rollouts_of_a_step(spec)
    if steps is None:
        told = "max_steps is not set: it trains for one pass over the cases, however many they are"
        return Cost(basis=told)
    size = {"steps": steps, "rollouts": steps * each, "rollouts_at_most": most}
    for done in sorted(before, key=lambda each: each.kind != "check"):
        seconds = _seconds_per_rollout(done.folder, done.kind)
        if seconds is not None:
            hours = float(f"{seconds * steps * each / 3600:.3g}")
            basis = (
                f"{done.folder.id} took {seconds:.2f} s a rollout; loading, warm start, validation "
                "and proof come on top"
            )
            return Cost(**size, hours=hours, basis=basis)
    told = "no check and no training of it has been completed yet, so nobody knows the time"
    return Cost(**size, basis=told)


def done_before(settled: Settled, caller: Caller) -> list[Done]:
    """Checks and trainings of the same environment and model, the newest first."""
    if not caller.runs.is_dir():
        return []
    states = (RunState.COMPLETED,)
    query = Query(states=states, environment=settled.found.name, count=_LOOKED_AT)
    model = str(settled.values.get("model") or "")
    return [
        Done(row.kind, RunFolder(caller.runs / row.id))
        for row in Index(caller.runs).page(query)
        if row.model == model and row.kind in ("check", "train")
    ]


def _seconds_per_rollout(folder: RunFolder, kind: str) -> float | None:
    try:
        spec = (CheckSpec if kind == "check" else TrainSpec).model_validate(folder.read_spec())
        return _seconds_per_step(folder, kind) / rollouts_of_a_step(spec)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _seconds_per_step(folder: RunFolder, kind: str) -> float:
    if kind == "check":
        estimate: dict[str, Any] = read_told(folder.summary)["estimate"]
        return float(estimate["seconds_per_step"]["value"])
    took = [float(row["seconds"]) for row in recent_rows(folder) if "loss" in row]
    return sum(took) / len(took)
