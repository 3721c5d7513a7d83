"""A training goes on where it stopped, tells what happened, and ends as one without a break."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from sparring import failed, measure
from sparring.contracts.errors import (
    CheckpointError,
    GuardStop,
    InfrastructureError,
)
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.files import read_lines
from tests.training import questions, trainer, weights_digest


def call_after_steps(made: Any, function: Any) -> None:
    reports = made._training.built.steps._reports
    reports._hooks = replace(reports._hooks, on_step=function)


def stopped_after(made: Any, step: int) -> Any:
    """Ask for a stop once this step is done."""
    note_step = made._training._note_step

    def note(at: int, row: dict[str, Any]) -> None:
        note_step(at, row)
        if at == step:
            made.stop()

    call_after_steps(made, note)
    with pytest.warns(RuntimeWarning, match="the training was stopped after"):
        return made.train()


@pytest.mark.parametrize(
    "options",
    [
        {"lora": {"r": 4}},
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ({}, {"beta": 0.1})),
    ],
    ids=str,
)
def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(
    tiny_folder, tmp_path, options
):
    given = {"max_steps": 5, "validation_cases": 8, **options}
    whole = trainer(tiny_folder, tmp_path, run="whole", **given).train()
    part = stopped_after(trainer(tiny_folder, tmp_path, run="part", **given), 2)
    assert part.summary.steps == 2
    rest = trainer(tiny_folder, tmp_path, run="part", **given).train()
    assert rest.summary.steps == 5
    assert weights_digest(rest) == weights_digest(whole)
    shards = [each.folder.rollouts() / "00000.jsonl" for each in (whole, rest)]
    assert shards[0].read_bytes() == shards[1].read_bytes()


@pytest.mark.nightly
def test_a_run_resumed_in_a_later_epoch_keeps_the_order_of_cases(tiny_folder, tmp_path):
    given = {"max_steps": 16, "suite": questions(32)}  # six steps an epoch
    whole = trainer(tiny_folder, tmp_path, run="whole", **given).train()
    stopped_after(trainer(tiny_folder, tmp_path, run="part", **given), 8)
    rest = trainer(tiny_folder, tmp_path, run="part", **given).train()
    assert [each.case.id for each in rest.rollouts()] == [each.case.id for each in whole.rollouts()]
    assert weights_digest(rest) == weights_digest(whole)


def test_steps_repeated_after_a_crash_are_in_the_history_once(tiny_folder, tmp_path):
    made = trainer(tiny_folder, tmp_path, run="r", max_steps=4, save_steps=2)

    def crash(step: int, row: dict[str, Any]) -> None:
        if step == 3:
            raise RuntimeError("the power went")

    call_after_steps(made, crash)
    with pytest.raises(RuntimeError, match="power"):
        made.train()
    result = trainer(tiny_folder, tmp_path, run="r", max_steps=4, save_steps=2).train()
    whole = trainer(tiny_folder, tmp_path, run="w", max_steps=4, save_steps=2).train()
    assert weights_digest(result) == weights_digest(whole)
    ids = [each.id for each in result.rollouts()]
    assert len(ids) == len(set(ids)) == 4 * 16


def test_training_a_completed_run_returns_its_weights_unchanged(tiny_folder, tmp_path):
    first = trainer(tiny_folder, tmp_path, run="r").train()
    again = trainer(tiny_folder, tmp_path, run="r").train()
    assert weights_digest(again) == weights_digest(first)
    for one, other in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_torn_newest_checkpoint_falls_back_to_an_older_one(tiny_folder, tmp_path):
    given = {"run": "r", "max_steps": 4, "save_steps": 1}
    whole = weights_digest(trainer(tiny_folder, tmp_path, **given).train())
    last = tmp_path / "r" / "checkpoints" / "step-4"
    weights = last / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert weights_digest(trainer(tiny_folder, tmp_path, **given).train()) == whole


def test_a_deleted_optimizer_is_refused(tiny_folder, tmp_path):
    trainer(tiny_folder, tmp_path, run="r", save_total_limit=1).train()
    (tmp_path / "r" / "checkpoints" / "step-3" / "optimizer.pt").unlink()
    with pytest.raises(CheckpointError, match=r"optimizer\.pt is missing"):
        trainer(tiny_folder, tmp_path, run="r", save_total_limit=1).train()


def test_a_run_whose_first_step_cannot_be_scored_fails_with_the_cause(tiny_folder, tmp_path):
    async def broken(**_):
        raise OSError("judge is down")

    made = trainer(tiny_folder, tmp_path, measures=(), reward_functions=[broken])
    with pytest.raises(InfrastructureError, match=r"first 16 rollouts .* judge is down"):
        made.train()


def test_a_run_says_once_why_prompts_are_not_shared(tiny_folder, tmp_path):
    result = trainer(tiny_folder, tmp_path, gradient_checkpointing=True, max_steps=2).train()
    messages = [event.get("message", "") for event in read_lines(result.folder.events)]
    assert sum("gradient checkpointing" in each for each in messages) == 1


@pytest.mark.parametrize(("logging_steps", "steps"), [(2, [2, 3]), (10, [3])])
def test_the_last_step_is_reported_whatever_the_log_lines(
    tiny_folder, tmp_path, logging_steps, steps
):
    result = trainer(tiny_folder, tmp_path, logging_steps=logging_steps).train()
    assert [row["step"] for row in result.history] == steps
    assert result.history[-1]["rollouts"] == 16 * (3 - ([0, *steps][-2]))
    assert result.final_loss == result.history[-1]["loss"]


def test_a_guard_that_stops_a_run_keeps_what_was_learned(tiny_folder, tmp_path):
    @measure
    def never(_):
        return failed("no")

    guards = {"dead_groups": {"steps": 2}}
    made = trainer(tiny_folder, tmp_path, measures=[never], max_steps=5, guards=guards)
    with pytest.raises(GuardStop, match="dead_groups"):
        made.train()
    (run,) = (path for path in tmp_path.iterdir() if (path / "spec.json").is_file())
    assert [each.step for each in list_checkpoints(RunFolder(run).checkpoints)] == [2]


@pytest.mark.nightly
def test_a_resumed_run_that_is_stopped_while_it_loads_has_the_weights_of_its_checkpoint(
    tiny_folder, tmp_path
):
    given = {"run": "part", "max_steps": 5, "validation_cases": 8}
    first = stopped_after(trainer(tiny_folder, tmp_path, **given), 2)
    made = trainer(tiny_folder, tmp_path, **given)
    made.stop()
    with pytest.warns(RuntimeWarning, match="the training was stopped after 2 of 5 steps"):
        again = made.train()
    assert again.summary.steps == first.summary.steps == 2
    assert weights_digest(again) == weights_digest(first)
