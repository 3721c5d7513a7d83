"""Trains SmolLM2-135M as the assistant of a shop: held-out pass rates before and after.

    python benchmarks/learning.py [--seed N] [--quick]

The agent must call the right one of three tools and use its result. Pass/fail measures only; LoRA;
CPU; shared prompts, live groups and ECHO on. Bars: at most 50 % before, at least 90 % after, at
most 5.8 minutes of training, which is half of the average time when prompts were computed for every
rollout. `--plain` turns shared prompts, live groups and ECHO off. `--quick` trains a few steps, and
requires only that the pass rate rises: the interval after is above the interval before.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "shop"))

from shop import Shop
from sparring import Trainer, evaluate

BEFORE, AFTER, MINUTES = 0.5, 0.9, 5.8
PLAIN = {"share_prompts": False, "replacement_groups": 0, "draw_by_difficulty": False}


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--steps", type=int, default=8)
    options.add_argument("--quick", action="store_true", help="a few steps, fewer cases")
    options.add_argument(
        "--plain", action="store_true", help="no shared prompts, live groups or ECHO"
    )
    options.add_argument("--dtype", default="bfloat16")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        shown = run(given, runs)
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def run(given: argparse.Namespace, runs: str) -> dict[str, Any]:
    shop = Shop()
    trainer = Trainer(
        shop.agent(),
        shop.suite(),
        shop.measures,
        examples=shop.examples,
        max_steps=5 if given.quick else given.steps,
        num_generations=8,
        cases_per_batch=2 if given.quick else 4,
        gradient_accumulation_steps=1,
        per_device_train_batch_size=8 if given.plain else None,
        learning_rate=5e-4 if given.quick else 3e-4,
        max_completion_length=80,
        max_turns=3,
        mask_truncated_completions=False,  # a right answer never reaches the limit
        lora=True,
        dtype=given.dtype,
        seed=given.seed,
        validation_cases=0,
        engine={"lr_scheduler_type": "constant"},
        runs=runs,
        **(PLAIN if given.plain else {"echo_coefficient": 0.05}),
    )
    before = held_out(trainer, given, runs)
    started = time.monotonic()
    result = trainer.train()
    minutes = (time.monotonic() - started) / 60
    after = held_out(trainer, given, runs)
    better = after["low"] > before["high"]
    rows = [row for row in result.history if "loss" in row]
    return {
        "benchmark": "learning",
        "quick": given.quick,
        "seed": given.seed,
        "dtype": given.dtype,
        "plain": given.plain,
        "before": before,
        "after": after,
        "steps": result.summary.steps,
        "rollouts": sum(int(row["rollouts"]) for row in rows),
        "training_minutes": round(minutes, 2),
        "live_groups": [round(row["live_groups"], 2) for row in rows],
        "replaced_groups": sum(int(row["replaced_groups"]) for row in rows),
        "seconds_per_step": [round(row["seconds"]) for row in rows],
        "pass_rate_in_training": [round(row["pass_rate/numeric"], 2) for row in rows],
        "bar": {"before": BEFORE, "after": AFTER, "minutes": MINUTES},
        "ok": better
        and (
            given.quick
            or (before["value"] <= BEFORE and after["value"] >= AFTER and minutes <= MINUTES)
        ),
    }


def held_out(trainer: Trainer, given: argparse.Namespace, runs: str) -> dict[str, Any]:
    """Return the share of held-out cases with a right answer, and its 95 % interval."""
    shop = Shop()
    shown = evaluate(
        shop.agent(),
        shop.suite(),
        shop.measures,
        examples=shop.examples,
        policy=trainer.policy,
        split="held-out",
        cases=64 if given.quick else 128,
        max_completion_length=80,
        max_turns=3,
        seed=given.seed + 1,
        runs=runs,
    )
    rate = shown.summary.measures["numeric"]["pass_rate"]
    return {
        "cases": shown.summary.cases,
        **{name: round(rate[name], 4) for name in ("value", "low", "high")},
        "right_tool": shown.pass_rates["right_tool"],
    }


if __name__ == "__main__":
    sys.exit(main())
