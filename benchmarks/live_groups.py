"""Compares training with and without replacement of dead groups and draws by difficulty.

    python benchmarks/live_groups.py [--seeds N] [--quick]

Trains on the bell with the tiny model, after a warm start. Two thirds of the training cases are too
easy (every rollout passes) or too hard (none passes). Both sides have the same seeds, model and
number of steps. Prints the share of live groups, the rollouts played, and the steps to 80 % on
validation cases that can be learned. Bars, as means over the seeds: a larger share of live groups,
and fewer steps to 80 %. `--quick` checks only the share.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from typing import Any

from porter import porter, warm_model
from sparring import Suite, failed, measure, passed

GOAL = 0.8
VALIDATE_EVERY = 2
SIDES: dict[str, dict[str, Any]] = {
    "without": {"replacement_groups": 0, "draw_by_difficulty": False},
    "with": {},
}


@measure
def rang(rollout):
    """Passes easy cases, fails hard ones, and passes a fair one if `ring` is the only call."""
    kind = rollout.case.fields["kind"]
    if kind != "fair":
        return passed("anything will do") if kind == "easy" else failed("nothing will do")
    calls = [call.tool for call in rollout.tool_calls]
    return passed("rang") if calls == ["ring"] else failed(f"called {calls}, not the bell")


def suite() -> Suite:
    """Return the cases. Validation has only fair cases, because those can be learned."""
    kinds = ("fair", "easy", "hard")
    return Suite.from_records(
        [
            {"input": f"guest {number}", "split": "training", "kind": kinds[number % 3]}
            for number in range(60)
        ]
        + [
            {"input": f"visitor {number}", "split": "validation", "kind": "fair"}
            for number in range(32)
        ]
    )


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--quick", action="store_true", help="one seed, a quarter of the steps")
    given = options.parse_args()
    seeds, steps = (1, given.steps // 4) if given.quick else (given.seeds, given.steps)
    shown: dict[str, Any] = {"benchmark": "live_groups", "steps": steps, "goal": GOAL, "sides": {}}
    with tempfile.TemporaryDirectory() as runs:
        shown["sides"] = {name: [] for name in SIDES}
        for seed in range(seeds):
            model = warm_model(runs, seed)
            for name, settings in SIDES.items():
                found = train(model, seed, steps, settings, runs)
                shown["sides"][name].append(found)
                print(name, found, flush=True)
    means = {
        name: {
            figure: round(statistics.mean(each[figure] for each in found), 3)
            for figure in ("live_groups", "steps_to_goal", "rollouts")
        }
        for name, found in shown["sides"].items()
    }
    shown["mean"] = means
    shown["ok"] = means["with"]["live_groups"] > means["without"]["live_groups"] and (
        given.quick or means["with"]["steps_to_goal"] < means["without"]["steps_to_goal"]
    )
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def train(model: str, seed: int, steps: int, settings: dict[str, Any], runs: str) -> dict[str, Any]:
    trainer = porter(
        model, runs, suite=suite(), measures=[rang], seed=seed, max_steps=steps, cases_per_batch=4,
        learning_rate=1e-4,
        validation_cases=32, save_steps=VALIDATE_EVERY, guards={"dead_groups": "warn"},
        **settings,
    )  # fmt: skip
    history = trainer.train().history
    rows = [row for row in history if "loss" in row]
    validated = {row["step"]: row["validation/reward"] for row in history if _is_validated(row)}
    reached = [
        step
        for (step, reward), following in zip(
            validated.items(), list(validated.values())[1:], strict=False
        )
        if reward >= GOAL and following >= GOAL  # with 32 cases, once can be chance
    ]
    return {
        "seed": seed,
        "live_groups": round(statistics.mean(row["live_groups"] for row in rows), 3),
        "replaced_groups": sum(int(row["replaced_groups"]) for row in rows),
        "rollouts": sum(int(row["rollouts"]) for row in rows),
        "steps_to_goal": min(reached, default=steps + 1),
        "validation": [round(reward, 2) for reward in validated.values()],
    }


def _is_validated(row: dict[str, Any]) -> bool:
    return row.get("validation/reward") is not None


if __name__ == "__main__":
    sys.exit(main())
