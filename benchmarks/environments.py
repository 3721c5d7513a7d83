"""Measures the untrained SmolLM2-135M on the four example environments.

    python benchmarks/environments.py [--cases 64]

Plays validation cases of each environment, one rollout per case, at temperature 0.8. No bar: the
pages of the examples have the figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FOUR = ("calculator", "document_qa", "number_game", "terminal")
COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=64)
    cases = options.parse_args().cases
    shown = {"benchmark": "environments", "model": "smollm2", "environments": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in FOUR:
            shown["environments"][name] = figures = play(name, cases, folder)
            print(f"{name}: {figures}", flush=True)
    print(json.dumps(shown))
    return 0


def play(name: str, cases: int, folder: str) -> dict[str, object]:
    file = EXAMPLES / name / f"{name}.py"
    done = subprocess.run(
        [*COMMAND, "eval", str(file), "--model", "smollm2", "--cases", str(cases), "--json"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return figures(json.loads(done.stdout))


def figures(summary: dict[str, Any]) -> dict[str, object]:
    """Return the pass rates with their intervals, and the mean reward."""
    rates = {
        measure: [round(result["pass_rate"][part], 3) for part in ("value", "low", "high")]
        for measure, result in summary["measures"].items()
    }
    return {"cases": summary["cases"], "pass_rate": rates, "reward": round(summary["reward"], 3)}


if __name__ == "__main__":
    sys.exit(main())
