"""What a training would take, from what a check or an earlier training of it took."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from sparring.contracts.specs import Frozen
from sparring.contracts.training import TrainSettings
from sparring.operations.budgets import rollouts_of_evaluation, rollouts_of_training
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


def cost_of(settled: Settled, caller: Caller, cases: int | None = None) -> Cost:
    if settled.kind == "eval":
        most = rollouts_of_evaluation(settled, cases)
        return Cost(rollouts=most, rollouts_at_most=most, basis="cases x rollouts")
    steps = settled.values["max_steps"]
    if steps is None:
        told = "max_steps is not set: it trains for one pass over the cases, however many they are"
        return Cost(basis=told)
    settings = TrainSettings.model_validate(settled.own())
    world = int(settled.values["processes"]) * int(settled.values["nodes"])
    size = {
        "steps": steps,
        "rollouts": steps * world * _per_step(settings),
        "rollouts_at_most": rollouts_of_training(settled, steps),
    }
    for kind in ("check", "train"):
        for folder in newest_completed(settled, caller, kind):
            seconds = _seconds_per_rollout(folder, kind)
            if seconds is not None:
                hours = float(f"{seconds * steps * _per_step(settings) / 3600:.3g}")
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
        settings = TrainSettings.model_validate(folder.read_spec()["settings"])
        return _seconds_per_step(folder, kind) / _per_step(settings)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, json.JSONDecodeError):
        return None


def _seconds_per_step(folder: RunFolder, kind: str) -> float:
    if kind == "check":
        estimate: dict[str, Any] = read_told(folder.summary)["estimate"]
        return float(estimate["seconds_per_step"]["value"])
    took = [float(row["seconds"]) for row in recent_rows(folder) if "loss" in row]
    return sum(took) / len(took)


def _per_step(settings: TrainSettings) -> int:
    return (
        settings.cases_per_batch * settings.gradient_accumulation_steps * settings.num_generations
    )
