"""A warm start changes the weights and nothing else, and is what the KL is measured from."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings, WarmStart
from sparring.engine.configuration import plan_of
from sparring.engine.opening import Loaded, load
from sparring.engine.warm_start import fine_tune, save_start, use_as_reference
from sparring.learning.checkpoints import Checkpoints, verify
from sparring.learning.rows import LearningRow
from tests.training import trainer

SETTINGS = TrainSettings(device="cpu", learning_rate=1e-2, seed=5)


def rows(count: int = 4) -> list[LearningRow]:
    """Rows whose last token was not sampled."""
    return [
        LearningRow(
            array("i", [30, 31, 32]),
            array("i", [40 + number, 50, 60]),
            b"\x01\x01\x00",
            array("f", [0.0] * 3),
        )
        for number in range(count)
    ]


def tune(
    loaded: Loaded,
    output: Path,
    given: list[LearningRow],
    *,
    on_step: Callable[[int, int, float], None] = lambda *_: None,
    is_stop_requested: Callable[[], bool] = lambda: False,
) -> None:
    fine_tune(
        loaded.model, loaded.tokenizer, given, SETTINGS,
        WarmStart(source="demonstrations", num_train_epochs=3, batch_size=2),
        output=output, plan=plan_of(SETTINGS, 8, 1), on_step=on_step,
        is_stop_requested=is_stop_requested,
    )  # fmt: skip


def state(model: Any) -> dict[str, torch.Tensor]:
    return {name: each.detach().clone() for name, each in model.state_dict().items()}


@dataclass
class Tuned:
    """A model before and after its warm start, with the steps and the next random numbers."""

    model: Any
    before: dict[str, torch.Tensor]
    forward: Any
    reports: list[tuple[int, int, float]]
    drawn: torch.Tensor


@pytest.fixture(scope="module")
def tuned(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    loaded = load(PolicySpec(model=str(tiny_folder)), SETTINGS)
    model, reports = loaded.model, []
    before, forward = state(model), model.__dict__.get("forward")
    tune(loaded, tmp_path_factory.mktemp("out"), rows(), on_step=lambda *step: reports.append(step))
    return Tuned(model, before, forward, reports, torch.rand(3))


def test_demonstrations_are_learned_in_batches_over_all_epochs(tuned: Tuned) -> None:
    steps = [(step, steps) for step, steps, _ in tuned.reports]
    assert steps == [(step, 6) for step in range(1, 7)]
    assert tuned.reports[-1][2] < tuned.reports[0][2]


def test_a_batch_has_its_rows_whatever_fits_a_pass(tiny_folder: Path, tmp_path: Path) -> None:
    loaded, reports = load(PolicySpec(model=str(tiny_folder)), SETTINGS), []
    three = SETTINGS.model_copy(update={"cases_per_batch": 1, "num_generations": 3})
    fine_tune(
        loaded.model, loaded.tokenizer, rows(12), SETTINGS,
        WarmStart(source="demonstrations", num_train_epochs=1, batch_size=4),
        output=tmp_path, plan=plan_of(three, 8, 1), on_step=lambda *step: reports.append(step),
    )  # fmt: skip
    assert [steps for _, steps, _ in reports] == [3, 3, 3], "12 rows, 4 at a time"


def test_only_weights_are_changed(tuned: Tuned) -> None:
    after = state(tuned.model)
    assert any(not torch.equal(tuned.before[name], each) for name, each in after.items())
    assert tuned.model.__dict__.get("forward") is tuned.forward
    assert "_is_accelerate_prepared" not in tuned.model.__dict__
    assert all(each.grad is None for each in tuned.model.parameters())


def test_random_numbers_are_those_of_the_seed_afterwards(tuned: Tuned) -> None:
    torch.manual_seed(SETTINGS.seed)
    assert torch.equal(tuned.drawn, torch.rand(3))


def test_a_stop_request_ends_it_and_tokens_that_were_not_sampled_are_not_learned(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """A last token that is masked is never predicted, so it may be any."""
    reports: list[int] = []
    learned = []
    for last in (60, 61):
        loaded = load(PolicySpec(model=str(tiny_folder)), SETTINGS)
        given = rows(2)
        for row in given:
            row.completion[-1] = last
        tune(
            loaded,
            tmp_path,
            given,
            on_step=lambda step, *_: reports.append(step),
            is_stop_requested=lambda: True,
        )
        learned.append(state(loaded.model))
    assert reports == [1, 1]
    assert all(torch.equal(each, learned[1][name]) for name, each in learned[0].items())


# ------------------------------------------------------------------ the checkpoint and the KL


def shift(model: Any) -> None:
    """As if it had learned something."""
    with torch.no_grad():
        for each in model.parameters():
            if each.requires_grad:
                each.add_(0.01)


def checkpoints(made: Any) -> Checkpoints:
    found: Checkpoints = made.engine.checkpoints
    return found


@pytest.mark.parametrize("how", [{}, {"lora": {"r": 2}}], ids=["full", "lora"])
def test_a_saved_start_is_intact_and_gives_its_weights_back(
    tiny_folder: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    made = trainer(tiny_folder, tmp_path, **how)
    shift(made.model)
    saved = state(made.model)
    save_start(made.engine, checkpoints(made), warm_start={"demonstrations": 3})
    start = checkpoints(made).start()
    assert start is not None
    assert verify(start.path) == ""
    assert start.manifest["warm_start"] == {"demonstrations": 3}
    shift(made.model)
    made.engine.start_from(start)
    drawn = torch.rand(3)
    assert all(torch.equal(saved[name], each) for name, each in state(made.model).items())
    torch.manual_seed(made.settings.seed)
    assert torch.equal(drawn, torch.rand(3))


def test_the_reference_of_a_full_fine_tune_is_the_start(tiny_folder: Path, tmp_path: Path) -> None:
    made = trainer(tiny_folder, tmp_path, beta=0.1)
    shift(made.model)
    use_as_reference(made.engine)
    start = state(made.model)
    shift(made.model)
    reference = state(made.engine.ref_model)
    assert all(torch.equal(start[name], each) for name, each in reference.items())


def test_the_reference_of_an_adapter_is_a_frozen_copy_of_it(
    tiny_folder: Path, tmp_path: Path
) -> None:
    made = trainer(tiny_folder, tmp_path, beta=0.1, lora={"r": 2})
    shift(made.model)
    use_as_reference(made.engine)
    model = made.engine.accelerator.unwrap_model(made.model)
    references = {name: each for name, each in model.named_parameters() if ".ref." in name}
    assert references
    for name, each in references.items():
        assert not each.requires_grad
        trained = model.get_parameter(name.replace(".ref.", ".default."))
        assert trained.requires_grad
        assert torch.equal(each, trained)


def test_without_a_kl_there_is_no_reference(tiny_folder: Path, tmp_path: Path) -> None:
    made = trainer(tiny_folder, tmp_path, lora={"r": 2})
    use_as_reference(made.engine)
    names = [name for name, _ in made.model.named_parameters()]
    assert not [name for name in names if ".ref." in name]


def test_the_reference_is_the_model_that_was_passed_and_not_the_one_of_its_name(
    tiny_folder: Path, tmp_path: Path
) -> None:
    loaded = trainer(tiny_folder, tmp_path, run="loaded")
    shift(loaded.model)
    made = trainer(tiny_folder, tmp_path, beta=0.1, model=loaded.model, tokenizer=loaded.tokenizer)
    reference = state(made.engine.ref_model)
    assert all(torch.equal(reference[name], each) for name, each in state(made.model).items())
