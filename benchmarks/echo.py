"""Compares training with ECHO, which also learns to predict tool results, and without.

    python benchmarks/echo.py [--quick]

Both coefficients, 0 and 0.05, use the same environment, seeds and steps: three seeds on the tiny
model after a warm start, one on SmolLM2-135M. Prints the loss per token of tool results in the
first and last steps, the mean reward on validation cases, and the ratio of step times on
SmolLM2-135M, measured on the same rollouts with alternating steps in one process. Bar: that ratio
is at most 1.03. The effect on the reward has no bar. `--quick` requires that ECHO predicts tool
results better.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "shop"))

from alternating import Alternation
from porter import porter, warm_model
from shop import Shop
from sparring import Trainer

COEFFICIENTS = (0.0, 0.05)
BAR = 1.03


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true", help="one seed of the tiny model")
    options.add_argument("--steps", type=int, default=20, help="number of steps on the tiny model")
    options.add_argument("--only", choices=("tiny", "smollm2"))
    given = options.parse_args()
    shown: dict[str, Any] = {"benchmark": "echo", "bar": BAR, "runs": {}}
    with tempfile.TemporaryDirectory() as runs:
        if given.only != "smollm2":
            steps = 5 if given.quick else given.steps
            for seed in range(1 if given.quick else 3):
                name = f"tiny, seed {seed}"
                model = warm_model(runs, seed)
                shown["runs"][name] = train_both(
                    lambda c, m=model, s=seed: bell(c, m, s, steps, runs)
                )
                print(name, shown["runs"][name], flush=True)
        if not given.quick and given.only != "tiny":
            shown["step_time"] = step_time(runs)
            print("step time", shown["step_time"], flush=True)
            shown["runs"]["smollm2"] = train_both(lambda c: shop(c, runs))
            print("smollm2", shown["runs"]["smollm2"], flush=True)
    is_fast = shown.get("step_time", {"ratio": 0.0})["ratio"] <= BAR
    shown["ok"] = is_fast and (not given.quick or all(map(predicts_better, shown["runs"].values())))
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def train_both(make: Any) -> dict[str, Any]:
    """Train with one coefficient after the other: threads would share their random numbers."""
    return {str(coefficient): _figures(make(coefficient).train()) for coefficient in COEFFICIENTS}


def predicts_better(run: dict[str, Any]) -> bool:
    """Return whether the last loss on tool results is lower with ECHO than without."""
    without, with_echo = (run[str(coefficient)]["env_loss_last"] for coefficient in COEFFICIENTS)
    return bool(with_echo < without)


def step_time(runs: str) -> dict[str, Any]:
    """Time steps with a learning rate so small that both sides play the same rollouts."""
    alternation = Alternation(("without", "with"))
    sides = {
        name: shop(coefficient, runs, learning_rate=1e-12, validation_cases=0, run=f"timed-{name}")
        for name, coefficient in zip(("without", "with"), COEFFICIENTS, strict=True)
    }
    for name, trainer in sides.items():
        trainer.engine.add_callback(alternation.callback(name))
    medians = alternation.run({name: trainer.train for name, trainer in sides.items()})
    return {
        "ratio": round(medians["with"] / medians["without"], 3),
        "seconds": {name: round(value, 2) for name, value in medians.items()},
    }


def _figures(result: Any) -> dict[str, Any]:
    rows = [row for row in result.history if "loss" in row]
    losses = [row["env_loss"] for row in rows if "env_loss" in row]
    validated = [row["validation/reward"] for row in result.history if "validation/reward" in row]
    return {
        "env_loss_first": round(statistics.mean(losses[:3]), 4),
        "env_loss_last": round(statistics.mean(losses[-3:]), 4),
        "validation_first": round(validated[0], 3),
        "validation_last": round(validated[-1], 3),
    }


def bell(coefficient: float, model: str, seed: int, steps: int, runs: str) -> Trainer:
    return porter(
        model, runs, seed=seed, max_steps=steps, validation_cases=20, replacement_groups=0,
        draw_by_difficulty=False, echo_coefficient=coefficient,
    )  # fmt: skip


def shop(coefficient: float, runs: str, **settings: Any) -> Trainer:
    given: dict[str, Any] = {
        "learning_rate": 3e-4, "validation_cases": 32, "run": f"smollm2-{coefficient}", **settings
    }  # fmt: skip
    return Trainer(
        Shop().agent(), Shop().suite(), Shop.measures, examples=Shop().examples, max_steps=4,
        num_generations=8,
        gradient_accumulation_steps=1, max_completion_length=80, max_turns=3,
        mask_truncated_completions=False, lora=True, dtype="bfloat16",
        echo_coefficient=coefficient, replacement_groups=0, draw_by_difficulty=False,
        engine={"lr_scheduler_type": "constant"}, runs=runs, show_progress=False, **given,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
