"""What a training would take, from what a check or an earlier training of it took."""

from __future__ import annotations

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

_LOOKED_AT = 5


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


def cost_of(spec: TrainSpec | EvalSpec, settled: Settled, caller: Caller) -> Cost:
    most = most_rollouts(spec)
    if isinstance(spec, EvalSpec):
        return Cost(rollouts=most, rollouts_at_most=most, basis="cases x rollouts")
    steps, each = spec.settings.max_steps, rollouts_of_a_step(spec)
    if steps is None:
        told = "max_steps is not set: it trains for one pass over the cases, however many they are"
        return Cost(basis=told)
    size = {"steps": steps, "rollouts": steps * each, "rollouts_at_most": most}
    for kind in ("check", "train"):
        for folder in newest_completed(settled, caller, kind):
            seconds = _seconds_per_rollout(folder, kind)
            if seconds is not None:
                hours = float(f"{seconds * steps * each / 3600:.3g}")
                basis = (
                    f"{folder.id} took {seconds:.2f} s a rollout; loading, warm start, validation "
                    "and proof come on top"
                )
                return Cost(**size, hours=hours, basis=basis)
    told = "no check and no training of it has been completed yet, so nobody knows the time"
    return Cost(**size, basis=told)


def newest_completed(settled: Settled, caller: Caller, kind: str) -> list[RunFolder]:
    """Of the same environment, with the same model."""
    if not caller.runs.is_dir():
        return []
    states = (RunState.COMPLETED,)
    query = Query(states=states, environment=settled.found.name, kind=kind, count=_LOOKED_AT)
    model = str(settled.values.get("model") or "")
    rows = Index(caller.runs).page(query)
    return [RunFolder(caller.runs / row.id) for row in rows if row.model == model]


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
