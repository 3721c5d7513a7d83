"""A shipment opens the named checkpoint, if it is intact, and keeps it when resumed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sparring.contracts.errors import CheckpointError, InvalidInput
from sparring.contracts.kinds import ShipSpec
from sparring.jobs.ship.context import choose_checkpoint, open_checkpoint
from sparring.run_folder import RunFolder
from tests.jobs.ship.made import seal_checkpoint
from tests.shipping.made import write_checkpoint

AGENT = SimpleNamespace(model=None)


@pytest.fixture
def training(tmp_path: Path, tiny_folder: Path) -> RunFolder:
    model = write_checkpoint(tiny_folder, tmp_path / "model")
    folder = RunFolder(tmp_path / "runs" / "bell-1")
    folder.create({"format": 1, "kind": "train"})
    for step in (2, 4):
        seal_checkpoint(folder, model, step)
    return folder


def shipment(training: RunFolder, tiny: Path, checkpoint: str = "") -> tuple[RunFolder, ShipSpec]:
    folder = RunFolder(training.path.parent / "ship-1")
    if not folder.path.exists():
        folder.create({"format": 1, "kind": "ship"})
    spec = ShipSpec(target="x", run=training.id, to="y", checkpoint=checkpoint)
    return folder, spec.model_copy(
        update={"base": spec.base.model_copy(update={"model": str(tiny)})}
    )


def test_the_named_checkpoint_is_kept_when_the_shipment_is_resumed(
    training: RunFolder, tiny_folder: Path
) -> None:
    assert choose_checkpoint(*shipment(training, tiny_folder, "step-2")).path.name == "step-2"
    assert choose_checkpoint(*shipment(training, tiny_folder, "step-4")).path.name == "step-2"


def test_an_unknown_checkpoint_is_refused_with_the_known_ones(
    training: RunFolder, tiny_folder: Path
) -> None:
    with pytest.raises(InvalidInput, match="has no checkpoint step-9; it has step-2, step-4"):
        choose_checkpoint(*shipment(training, tiny_folder, "step-9"))


def test_a_damaged_checkpoint_is_refused(training: RunFolder, tiny_folder: Path) -> None:
    folder, spec = shipment(training, tiny_folder, "step-4")
    chosen = choose_checkpoint(folder, spec)
    assert open_checkpoint(chosen, spec, None, AGENT).is_adapter
    weights = chosen.path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=r"cannot be shipped: .*adapter_model.safetensors"):
        open_checkpoint(chosen, spec, None, AGENT)


def test_a_run_without_a_models_name_is_refused(training: RunFolder, tiny_folder: Path) -> None:
    folder, spec = shipment(training, tiny_folder, "step-4")
    spec = spec.model_copy(update={"base": spec.base.model_copy(update={"model": None})})
    with pytest.raises(InvalidInput, match="does not name the model it started from"):
        open_checkpoint(choose_checkpoint(folder, spec), spec, None, AGENT)
