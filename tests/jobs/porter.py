"""The porter of examples/bell, to be trained in tests: an agent with tools for the tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparring import Trainer
from sparring.environments.loading import load_environment
from tests.training import trainer

BELL = Path(__file__).resolve().parents[2] / "examples" / "bell"
DEMONSTRATIONS = BELL / "demonstrations.jsonl"


def porter(tiny: Path, runs: Path, **options: Any) -> Trainer:
    """`warm_start` needs no source: it is the example's own."""
    if "warm_start" in options:
        options["warm_start"] = {"source": str(DEMONSTRATIONS), **options["warm_start"]}
    bell = load_environment(f"{BELL / 'bell.py'}:Bell")
    given = {
        "agent": bell.agent(),
        "suite": bell.suite(),
        "measures": bell.measures,
        "family": None,
        "learning_rate": 3e-4,
        "num_generations": 4,
        "max_completion_length": 128,
        "max_turns": 2,
        "mask_truncated_completions": False,
        "guards": {"dead_groups": "warn", "no_tool_call": "warn"},
        **options,
    }
    return trainer(tiny, runs, **given)


def warm_model(tiny: Path, runs: Path) -> Path:
    """A model that has seen the demonstrations, at runs/warm/checkpoints/step-0."""
    warm = {"num_train_epochs": 40, "learning_rate": 3e-3}
    made = porter(tiny, runs, run="warm", warm_start=warm, max_steps=1, learning_rate=1e-12)
    return made.train().folder.checkpoints / "step-0"
