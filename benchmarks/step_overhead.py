"""What a whole step costs beside bare TRL: same prompts, same batch, as many tokens, no tools.

    python benchmarks/step_overhead.py [--quick]

Interleaved step by step in one process. Bar: 1.05 on SmolLM2-135M. On the tiny model, where
sampling costs nothing, the ratio and what is behind it are printed. `--quick` does the tiny
model only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from typing import Any

from bare_trl import Contest

BAR = 1.05
# Long enough for a plain assistant's instructions; no tools, no examples.
INSTRUCTIONS = "You are a helpful assistant. Answer briefly, in one sentence. " * 4


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    given = options.parse_args()
    shown: dict[str, Any] = {"benchmark": "step_overhead", "bar": BAR, "models": {}}
    with tempfile.TemporaryDirectory() as folder:
        shown["models"]["tiny"] = beside("tiny", 20, 12, folder)
        if not given.quick:
            shown["models"]["smollm2"] = beside("smollm2", 6, 32, folder)
    held = shown["models"].get("smollm2")
    shown["ok"] = held is None or held["ratio"] <= BAR
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def beside(model: str, steps: int, tokens: int, folder: str) -> dict[str, Any]:
    contest = Contest(
        model, folder, steps=steps, tokens=tokens, instructions=INSTRUCTIONS, group=4, cases=2
    )
    medians = contest.race()
    rollouts = contest.group * contest.cases
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
