"""Trainers for the bell on the tiny model, which start from the same warm-started weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "bell"))

from bell import DEMONSTRATIONS, Bell
from sparring import Trainer


def warm_model(runs: str, seed: int) -> str:
    """Return a checkpoint after a warm start on demonstrations, half of which ring, half knock."""
    trainer = porter(
        "tiny", runs, seed=seed, max_steps=1, learning_rate=1e-12, run=f"warm-{seed}",
        warm_start={"source": str(DEMONSTRATIONS), "num_train_epochs": 40, "learning_rate": 3e-3},
    )  # fmt: skip
    return str(trainer.train().folder.checkpoints / "step-0")


def porter(model: str, runs: str, **settings: Any) -> Trainer:
    given: dict[str, Any] = {
        "suite": Bell().suite(), "measures": Bell.measures, "learning_rate": 3e-4,
        "num_generations": 8, "cases_per_batch": 8, "gradient_accumulation_steps": 1, "beta": 0.1,
        "max_completion_length": 128, "max_turns": 2, "mask_truncated_completions": False,
        "validation_cases": 0, "save_steps": 5, "save_total_limit": 1,
        "engine": {"lr_scheduler_type": "constant"}, "runs": runs, "show_progress": False,
        **settings,
    }  # fmt: skip
    suite, measures = given.pop("suite"), given.pop("measures")
    return Trainer(Bell().agent(), suite, measures, model=model, **given)
