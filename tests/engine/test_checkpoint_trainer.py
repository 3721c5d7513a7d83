"""What the trainer saves, where, and what it loads again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sparring.contracts.errors import CheckpointError
from sparring.engine.checkpoints import verify
from tests.engine.built_run import Run


def test_a_checkpoint_is_validated_sealed_and_reported(run: Run) -> None:
    run.engine.create_optimizer_and_scheduler(num_training_steps=2)
    run.engine.state.global_step = 1
    run.engine._save_checkpoint(run.engine.model, None)
    ((step, path),) = run.saved
    (checkpoint,) = run.built.checkpoints.all()
    assert (step, path) == (1, checkpoint.path)
    assert verify(path) == ""
    assert checkpoint.manifest["score"] == 1.0
    assert {"torch", "trl"} <= checkpoint.manifest["versions"].keys()
    assert run.doing[-2:] == ["validating", "saving"]


def test_a_save_inside_of_a_generation_is_refused_by_the_trainer(make: Callable[..., Run]) -> None:
    run = make(engine={"num_iterations": 2})
    run.engine.state.global_step = 1
    with pytest.raises(CheckpointError, match="in the middle of a generation"):
        run.engine._save_checkpoint(run.engine.model, None)
    assert not run.built.checkpoints.all()


@pytest.mark.parametrize("lora", [False, True])
def test_the_weights_of_a_checkpoint_replace_those_of_the_model(
    make: Callable[..., Run], lora: bool
) -> None:
    run = make(lora=lora)
    run.engine.create_optimizer_and_scheduler(num_training_steps=2)
    run.engine.state.global_step = 1
    run.engine._save_checkpoint(run.engine.model, None)
    before = {name: weights.detach().clone() for name, weights in trainable(run)}
    with torch.no_grad():
        for _, weights in trainable(run):
            weights.add_(1.0)
    run.engine._load_from_checkpoint(str(run.saved[0][1]))
    assert before
    assert all(torch.equal(before[name], weights) for name, weights in trainable(run))


def test_files_go_to_staging_only_while_a_checkpoint_is_saved(run: Run) -> None:
    usual = run.engine._get_output_dir(None)
    run.engine._staging = run.built.checkpoints.staging(1)
    assert run.engine._get_output_dir(None) == str(run.engine._staging) != usual


def test_a_run_reports_to_no_one(make: Callable[..., Run], monkeypatch: Any) -> None:
    """TRL would tell its makers of each training, and write a card with the hub's help."""
    sent: list[Any] = []
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", lambda **what: sent.append(what))
    assert make().engine.create_model_card() is None
    assert sent == []


def trainable(run: Run) -> list[tuple[str, Any]]:
    return [each for each in run.engine.model.named_parameters() if each[1].requires_grad]
