"""Between steps: a checkpoint where it is due, at the end and before a stop; else nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.errors import GuardStop
from sparring.engine.step_callbacks import StepCallbacks


class Trainer:
    """Notes what its callbacks ask for."""

    def __init__(self, *, boundary: int = 1, checkpoint_steps: int = 5) -> None:
        self.plan: Any = SimpleNamespace(boundary=boundary, checkpoint_steps=checkpoint_steps)
        self.reports: Any = SimpleNamespace(guard_stop=None, starts_after=self.noted_start)
        self.stopped = False
        self.is_stopping = False
        self.noted: list[Any] = []

    def noted_start(self, step: int) -> None:
        self.start = step

    def validate_start(self) -> None:
        self.noted.append("validate")

    def refuse_broken_gradients(self) -> None:
        self.noted.append("gradients")

    def report(self, logs: dict[str, Any]) -> None:
        self.noted.append(logs)

    def is_stop_requested(self) -> bool:
        return self.is_stopping


def controlled(trainer: Trainer, step: int, event: str = "on_step_end") -> SimpleNamespace:
    control = SimpleNamespace(should_save=False, should_training_stop=False, should_log=False)
    state = SimpleNamespace(global_step=step, max_steps=8)
    getattr(StepCallbacks(trainer), event)(None, state, control)
    return control


def decided(trainer: Trainer, step: int, event: str = "on_step_end") -> tuple[bool, bool]:
    """Whether to save and whether to stop at the end of a step."""
    control = controlled(trainer, step, event)
    return control.should_save, control.should_training_stop


@pytest.mark.parametrize(
    ("step", "is_stopping", "saves", "stops"),
    [
        (4, False, False, False),
        (5, False, True, False),
        (4, True, True, True),
        (8, False, True, False),
        (8, True, True, False),
    ],
)
def test_a_checkpoint_is_saved_where_it_is_due_at_the_end_and_before_a_stop(
    step: int, is_stopping: bool, saves: bool, stops: bool
) -> None:
    trainer = Trainer()
    trainer.is_stopping = is_stopping
    assert decided(trainer, step) == (saves, stops)
    assert trainer.stopped is stops


def test_nothing_is_decided_inside_of_a_generation() -> None:
    trainer = Trainer(boundary=2, checkpoint_steps=1)
    trainer.is_stopping = True
    assert decided(trainer, 3) == (False, False)
    assert decided(trainer, 4) == (True, True)


def test_only_a_training_that_begins_is_validated_before_its_first_step() -> None:
    trainer = Trainer()
    for step in (0, 3):
        StepCallbacks(trainer).on_train_begin(None, SimpleNamespace(global_step=step), None)
    assert trainer.noted == ["validate"]
    assert trainer.start == step, "guards count the steps since then"


def test_gradients_are_looked_at_and_logs_are_reported() -> None:
    trainer = Trainer()
    StepCallbacks(trainer).on_pre_optimizer_step(None, None, None)
    state = SimpleNamespace(global_step=1)
    StepCallbacks(trainer).on_log(None, state, None, logs={"loss": 1.0})
    StepCallbacks(trainer).on_log(None, state, None)
    assert trainer.noted == ["gradients", {"loss": 1.0}, {}]


def test_the_last_step_and_the_one_before_a_stop_are_reported_whatever_is_logged_else() -> None:
    trainer = Trainer()
    assert [controlled(trainer, step).should_log for step in (4, 5, 8)] == [False, False, True]
    trainer.is_stopping = True
    assert controlled(trainer, 4).should_log


def test_a_guard_ends_the_run_between_generations_with_a_checkpoint() -> None:
    trainer = Trainer(boundary=2)
    trainer.reports.guard_stop = GuardStop("nothing is left to learn", guard="dead_groups")
    assert decided(trainer, 3, "on_log") == (False, False)
    assert decided(trainer, 4, "on_log") == decided(trainer, 4) == (True, True)
    assert controlled(trainer, 4).should_log, "the checkpoint has no step that was not reported"
    assert not trainer.stopped, "nobody asked for it"
