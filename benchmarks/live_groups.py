"""Live groups: dead ones replaced, and cases that teach nothing drawn less, with and without.

    python benchmarks/live_groups.py [--seeds N] [--quick]

The doors, of which two thirds of the cases are too easy (any call passes) or too hard (no
answer passes), on the tiny model after a warm start. Both sides have the same seeds, warm start
and number of steps. Printed: the share of live groups, rollouts played, and the steps to 80 %
on validation cases that can be learned. Bar: a larger share of live groups, and as many or
fewer steps to 80 %, in the mean over the seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "doors"))

from doors import BEHIND, DEMONSTRATIONS, PLEAS, Doors
from sparring import Suite, Trainer, failed, measure, passed

GOAL = 0.8
SIDES: dict[str, dict[str, Any]] = {
    "without": {"replacement_groups": 0, "draw_by_difficulty": False},
    "with": {},
}


@measure
def opened(rollout):
    """Easy cases take any answer, hard ones none; the others want the right door's content."""
    kind, wanted = rollout.case.fields["kind"], rollout.expected
    if kind == "fair":
        right = wanted in rollout.answer
        return passed(f"said {wanted}") if right else failed(f"did not say {wanted}")
    return passed("any answer will do") if kind == "easy" else failed("no answer will do")


def suite() -> Suite:
    """Validation has fair cases only: what is measured there can be learned."""
    records = []
    for number in range(100, 124):
        for plea in PLEAS:
            for place, (colour, thing) in enumerate(BEHIND.items()):
                text = f"{number}: {plea.format(colour)}"
                is_validation = number % 4 == 0
                kind = "fair" if is_validation else ("fair", "easy", "hard")[(number + place) % 3]
                split = "validation" if is_validation else "training"
                records.append({"input": text, "expected": thing, "kind": kind, "split": split})
    return Suite.from_records(records)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--quick", action="store_true", help="one seed, half the steps, no bar")
    given = options.parse_args()
    seeds, steps = (1, given.steps // 2) if given.quick else (given.seeds, given.steps)
    shown: dict[str, Any] = {"benchmark": "live_groups", "steps": steps, "goal": GOAL, "sides": {}}
    with tempfile.TemporaryDirectory() as runs:
        for name, settings in SIDES.items():
            shown["sides"][name] = [one(seed, steps, settings, runs) for seed in range(seeds)]
            print(name, shown["sides"][name], flush=True)
    means = {
        name: {
            figure: round(statistics.mean(each[figure] for each in found), 3)
            for figure in ("live_groups", "steps_to_goal", "rollouts")
        }
        for name, found in shown["sides"].items()
    }
    shown["mean"] = means
    shown["ok"] = means["with"]["live_groups"] > means["without"]["live_groups"] and (
        given.quick or means["with"]["steps_to_goal"] <= means["without"]["steps_to_goal"]
    )
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def one(seed: int, steps: int, settings: dict[str, Any], runs: str) -> dict[str, Any]:
    trainer = Trainer(
        Doors().agent(), suite(), [opened], model="tiny", seed=seed, max_steps=steps,
        warm_start={"source": str(DEMONSTRATIONS), "num_train_epochs": 12,
                    "learning_rate": 3e-3},
        learning_rate=3e-4, num_generations=8, cases_per_batch=4, gradient_accumulation_steps=1,
        max_completion_length=128, tool_rounds=1, temperature=1.0, validation_cases=64,
        checkpoint_steps=5, checkpoints_kept=1, mask_truncated_completions=False,
        engine={"lr_scheduler_type": "constant"}, guards={"dead_groups": "warn"},
        runs=runs, show_progress=False, **settings,
    )  # fmt: skip
    history = trainer.train().history
    rows = [row for row in history if "loss" in row]
    validated = {row["step"]: row["validation/reward"] for row in history if _is_validated(row)}
    reached = [step for step, reward in validated.items() if reward >= GOAL]
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
