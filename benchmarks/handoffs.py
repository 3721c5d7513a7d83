"""Trains agents that hand off to one another: SmolLM2-135M as a front desk and its specialists.

    python benchmarks/handoffs.py [--seed N] [--quick]

The front desk hands each question off to a specialist, who looks the answer up with a tool: three
turns, two rows, pass/fail measures only, LoRA, CPU. Bars: 20 to 50 % of held-out cases are right
before, at least 85 % after, and training takes at most 30 minutes. `--quick` trains a few steps,
and requires only that the pass rate rises: the interval after is above the interval before.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "front_desk"))

from front_desk import FrontDesk
from sparring import Trainer, evaluate

BEFORE, AFTER, MINUTES = (0.2, 0.5), 0.85, 30.0


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--steps", type=int, default=5)
    options.add_argument("--quick", action="store_true", help="a few steps, fewer rollouts")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        shown = run(given, runs)
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def run(given: argparse.Namespace, runs: str) -> dict[str, Any]:
    desk = FrontDesk()
    trainer = Trainer(
        desk.agent(),
        desk.suite(),
        desk.measures,
        examples=desk.examples,
        model="smollm2",
        max_steps=4 if given.quick else given.steps,
        num_generations=8,
        cases_per_batch=3,
        gradient_accumulation_steps=1,
        learning_rate=5e-4,
        mask_truncated_completions=False,  # right answers never reach the length limit
        lora=True,
        seed=given.seed,
        validation_cases=0,
        engine={"lr_scheduler_type": "constant"},
        runs=runs,
        show_progress=False,
        **FrontDesk.settings,
    )
    before = held_out(trainer, given, runs)
    started = time.monotonic()
    result = trainer.train()
    minutes = (time.monotonic() - started) / 60
    after = held_out(trainer, given, runs)
    history = [row for row in result.history if "loss" in row]
    in_range = BEFORE[0] <= before["value"] <= BEFORE[1]
    return {
        "benchmark": "handoffs",
        "quick": given.quick,
        "seed": given.seed,
        "before": before,
        "after": after,
        "steps": result.summary.steps,
        "training_minutes": round(minutes, 2),
        "rows_per_rollout": dict(Counter(len(each.rows) for each in result.rollouts())),
        "pass_rate_in_training": [round(row["pass_rate/numeric"], 2) for row in history],
        "seconds_per_step": [round(row["seconds"]) for row in history],
        "bar": {"before": BEFORE, "after": AFTER, "minutes": MINUTES},
        "ok": after["low"] > before["high"]
        and (given.quick or (in_range and after["value"] >= AFTER and minutes <= MINUTES)),
    }


def held_out(trainer: Trainer, given: argparse.Namespace, runs: str) -> dict[str, Any]:
    """Return the share of held-out cases with a right answer, and its 95 % interval."""
    desk = FrontDesk()
    shown = evaluate(
        desk.agent(),
        desk.suite(),
        desk.measures,
        examples=desk.examples,
        policy=trainer.policy,
        split="held-out",
        num_generations=1 if given.quick else 2,
        seed=given.seed + 1,
        runs=runs,
        show_progress=False,
        **FrontDesk.settings,
    )
    rate = shown.summary.measures["numeric"]["pass_rate"]
    return {
        "cases": shown.summary.cases,
        **{name: round(rate[name], 4) for name in ("value", "low", "high")},
        "right_specialist": shown.pass_rates["right_specialist"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
