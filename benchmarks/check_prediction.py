"""Compares what `sparring check` predicts with what training then measures.

    python benchmarks/check_prediction.py [--model smollm2] [--only NAME]

For each of the four example environments, runs a check, then five training steps with the same
settings. Compares the share of live groups before replacement (a replaced group counts as dead)
with the predicted interval, and the predicted CPU time of a step with the measured one. Bars: the
share is inside its interval on three of the four, and the prediction is within 30 % of the measured
time on three of the four.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FOUR = ("calculator", "number_game", "terminal", "document_qa")
COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
SETTINGS = ("lora=true", "per_device_train_batch_size=8", "max_completion_length=256")
STEPS, ENOUGH, TOLERANCE = 5, 3, 0.30


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="smollm2")
    options.add_argument("--only", action="append", choices=FOUR)
    options.add_argument("--cases", type=int, default=8)
    options.add_argument("--rollouts", type=int, default=8)
    given = options.parse_args()
    shown: dict[str, Any] = {"benchmark": "check_prediction", "model": given.model}
    shown["environments"] = {}
    with tempfile.TemporaryDirectory() as place:
        for name in given.only or FOUR:
            figures = compare(name, given, place)
            shown["environments"][name] = figures
            print(f"{name}: {figures}", flush=True)
    found = shown["environments"].values()
    shown["live_inside"] = sum(each["live_inside"] for each in found)
    shown["time_inside"] = sum(each["time_inside"] for each in found)
    enough = min(ENOUGH, len(shown["environments"]))
    shown["ok"] = shown["live_inside"] >= enough and shown["time_inside"] >= enough
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def compare(name: str, given: argparse.Namespace, place: str) -> dict[str, Any]:
    target = str(EXAMPLES / name / f"{name}.py")
    settings = [part for each in SETTINGS for part in ("--set", each)]
    common = [target, "--model", given.model, *settings, "--json"]
    sizes = ["--cases", str(given.cases), "--rollouts", str(given.rollouts)]
    checked = _run(
        place, "check", *common, *sizes, "--compare", "none", "--set", f"max_steps={STEPS}"
    )
    more = ["--max-steps", str(STEPS), "--validation-cases", "0", "--no-prove"]
    trained = _run(place, "train", *common, *more)
    rows = _steps(Path(place) / "runs" / trained["run"] / "metrics.jsonl")
    groups = sum(row["groups"] for row in rows)
    live = sum(row["groups"] * row["live_groups"] - row["replaced_groups"] for row in rows) / groups
    planned = next(each for each in checked["live"] if each["group_size"] == checked["group_size"])
    cpu = statistics.mean(row["cpu_seconds"] for row in rows)
    predicted = checked["estimate"]["cpu_seconds_per_step"]["value"]
    return {
        "verdict": checked["verdict"],
        "predicted_live": [round(planned[part], 3) for part in ("value", "low", "high")],
        "live": round(live, 3),
        "live_inside": planned["low"] <= live <= planned["high"],
        "predicted_cpu_seconds": round(predicted, 1),
        "cpu_seconds": round(cpu, 1),
        "time_inside": abs(predicted / cpu - 1) <= TOLERANCE,
    }


def _steps(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if "loss" in row]


def _run(place: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: {done.stdout[-500:]} {done.stderr[-1500:]}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


if __name__ == "__main__":
    sys.exit(main())
