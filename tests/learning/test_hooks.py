"""Hooks that nobody sets change nothing."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from sparring.learning.hooks import Hooks
from sparring.learning.parity import Parity
from sparring.learning.rows import LearningRollout, masked_row


def test_without_hooks_every_rollout_is_learned_from_and_nothing_stops() -> None:
    learned = [LearningRollout((masked_row(1),), 1.0)]
    hooks = Hooks()
    assert hooks.on_learned(learned) is learned
    assert hooks.should_stop() is False


def test_every_report_may_be_left_out() -> None:
    hooks = Hooks()
    reports = [
        hooks.on_step(1, {}),
        hooks.on_validation(1, {}),
        hooks.on_parity(Parity(1, 0.0, 0.0, "float32")),
        hooks.on_warning("careful"),
        hooks.on_saved(1, Path("step-1")),
        hooks.on_doing("playing", 1),
    ]
    assert reports == [None] * (len(fields(Hooks)) - 2), "all but on_learned and should_stop"


def test_hooks_cannot_be_exchanged_while_a_training_runs() -> None:
    hooks = Hooks()
    with pytest.raises(FrozenInstanceError):
        hooks.should_stop = lambda: True
