"""Callbacks by which the engine reports progress and checks for stop requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.learning.parity import Parity
from sparring.learning.rows import LearningRollout


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of the engine. Only rank 0 calls `on_step`, `on_validation` and `on_saved`.

    `on_learned` gets the learning rollouts of a step before TRL does, and returns those to learn
    from. `on_doing` gets the name of an activity that begins, and the step.
    """

    on_step: Callable[[int, dict[str, Any]], None] = lambda _step, _row: None
    on_validation: Callable[[int, dict[str, Any]], None] = lambda _step, _row: None
    on_parity: Callable[[Parity], None] = lambda _: None
    on_warning: Callable[[str], None] = lambda _: None
    on_saved: Callable[[int, Path], None] = lambda _step, _path: None
    on_doing: Callable[[str, int], None] = lambda _doing, _step: None
    on_learned: Callable[[list[LearningRollout]], list[LearningRollout]] = lambda learned: learned
    should_stop: Callable[[], bool] = lambda: False
