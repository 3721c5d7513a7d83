"""Finds and opens the checkpoint of a shipment."""

from __future__ import annotations

from typing import Any

from sparring.contracts.errors import CheckpointError, InvalidInput
from sparring.contracts.ship_specs import ShipSpec
from sparring.engine.checkpoints import verify
from sparring.jobs.run_lock import report_event
from sparring.policies.families import Family, family_named
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import Checkpoint, best_of, list_checkpoints
from sparring.run_folder.files import read_lines
from sparring.shipping.source import Source, open_source


def sibling_run(folder: RunFolder, run: str) -> RunFolder:
    """Return the run with the id `run` in the same runs folder."""
    return RunFolder(folder.path.parent / run)


def choose_checkpoint(folder: RunFolder, spec: ShipSpec) -> Checkpoint:
    """Return the checkpoint that the spec names; by default the best on validation, or the last if
    none was validated. A resumed shipment keeps its checkpoint."""
    checkpoints = list_checkpoints(sibling_run(folder, spec.run).checkpoints)
    events = [line for line in read_lines(folder.events) if line.get("event") == "shipping"]
    wanted = events[-1]["checkpoint"] if events else spec.checkpoint
    found = {each.path.name: each for each in checkpoints}
    if not found or (wanted and wanted not in found):
        names = ", ".join(found) or "none"
        missing = wanted or "to ship"
        raise InvalidInput(f"run {spec.run} has no checkpoint {missing}; there are {names}")
    chosen = found[wanted] if wanted else best_of(checkpoints) or checkpoints[-1]
    if not events:
        report_event(folder, "shipping", checkpoint=chosen.path.name)
    return chosen


def open_checkpoint(
    checkpoint: Checkpoint, spec: ShipSpec, declared: Family | None, agent: Any
) -> Source:
    """Verify a checkpoint by its manifest and open it. `declared` is the environment's family."""
    if problem := verify(checkpoint.path):
        raise CheckpointError(
            f"{checkpoint.path} cannot be shipped: {problem}; ship another checkpoint"
        )
    base = spec.base
    family = family_named(base.family) if base.family else declared
    if family is not None and (base.thinking, base.history_thinking) != ("auto", "drop"):
        family = family.adapted(base.thinking, base.history_thinking)
    model = base.model or agent.model
    if not isinstance(model, str):
        raise InvalidInput(f"run {spec.run} does not name the model it started from")
    return open_source(checkpoint.path, model, family)
