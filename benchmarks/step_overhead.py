"""Compares a whole step with bare TRL: the same prompts, batch and number of tokens, no tools.

    python benchmarks/step_overhead.py [--quick]

Steps alternate in one process. Bar: a ratio of at most 1.05 on SmolLM2-135M. On the tiny model,
where sampling costs almost nothing, the ratio and the difference per rollout are printed without a
bar. `--quick` uses only the tiny model.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from typing import Any

from bare_trl import Comparison

BAR = 1.05
# As long as the instructions of a plain assistant, without tools and examples.
INSTRUCTIONS = "You are a helpful assistant. Answer briefly, in one sentence. " * 4


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    given = options.parse_args()
    shown: dict[str, Any] = {"benchmark": "step_overhead", "bar": BAR, "models": {}}
    with tempfile.TemporaryDirectory() as folder:
        shown["models"]["tiny"] = compare("tiny", 20, 12, folder)
        if not given.quick:
            shown["models"]["smollm2"] = compare("smollm2", 6, 32, folder)
    smollm2 = shown["models"].get("smollm2")
    shown["ok"] = smollm2 is None or smollm2["ratio"] <= BAR
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def compare(model: str, steps: int, tokens: int, folder: str) -> dict[str, Any]:
    comparison = Comparison(
        model, folder, steps=steps, tokens=tokens, instructions=INSTRUCTIONS, group=4, cases=2
    )
    medians = comparison.time_steps()
    rollouts = comparison.group * comparison.cases
    return {
        "ratio": round(medians["ours"] / medians["trl"], 3),
        "seconds": {name: round(value, 4) for name, value in medians.items()},
        "milliseconds_per_rollout": round(1000 * (medians["ours"] - medians["trl"]) / rollouts, 2),
        "steps": steps,
        "rollouts_per_step": rollouts,
        "tokens_per_rollout": tokens,
    }


if __name__ == "__main__":
    sys.exit(main())
