"""Runs check, train, prove and report on the calculator with SmolLM2-135M.

    python benchmarks/check_train_prove.py [--folder FOLDER] [--model smollm2]

With `--folder`, reuses the runs that are already in the folder, and starts only the missing ones.
Bars: the verdict of the check is learnable, and the verdict of the proof on held-out cases is
better. Takes about 20 minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CALCULATOR = Path(__file__).resolve().parents[1] / "examples" / "calculator" / "calculator.py"
COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
SETTINGS = {
    "num_generations": 8,
    "lora": "true",
    "learning_rate": 3e-4,
    "per_device_train_batch_size": 8,
    "max_completion_length": 96,
    "max_steps": 8,
    "save_steps": 4,
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path)
    options.add_argument("--model", default="smollm2")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = given.folder or Path(place)
        checked = load_or_run(folder, "check", given.model)
        trained = load_or_run(folder, "train", given.model)
        proof = _summary(folder / "runs" / f"proof-{trained['run']}")
        shown = figures(checked, trained, proof)
        shown["report_kib"] = _report_of(proof["run"], folder).stat().st_size // 1024
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def figures(
    checked: dict[str, Any], trained: dict[str, Any], proof: dict[str, Any]
) -> dict[str, Any]:
    live, step = checked["live"][0], checked["estimate"]["seconds_per_step"]
    rows = {"reward": proof["reward"], **proof["measures"]}
    return {
        "benchmark": "check_train_prove",
        "check": {
            "verdict": checked["verdict"],
            "why": checked["why"],
            "live": [round(live[part], 2) for part in ("value", "low", "high")],
            "seconds_per_step": [round(step[part], 1) for part in ("value", "low", "high")],
            "findings": len(checked["audit"]),
        },
        "train": {
            "steps": trained["steps"],
            "seconds_per_step": round(trained["seconds"] / trained["steps"], 1),
            "validation": [round(row["reward"], 3) for row in trained["validation"]],
        },
        "proof": {
            "verdict": proof["verdict"],
            "cases": proof["cases"],
            "rollouts_per_case": proof["rollouts_per_case"],
            **{
                name: [round(row[part], 3) for part in ("before", "after", "value", "low", "high")]
                for name, row in rows.items()
            },
        },
        "ok": checked["verdict"] == "learnable" and proof["verdict"] == "better",
    }


def load_or_run(folder: Path, command: str, model: str) -> dict[str, Any]:
    """Return the summary of a run of this command; if the folder has none, start one."""
    prefix = {"check": "check-calculator-", "train": "calculator-"}[command]
    summaries = sorted(folder.glob(f"runs/{prefix}*/report/summary.json"))
    if not summaries:
        settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
        subprocess.run(
            [*COMMAND, command, str(CALCULATOR), "--model", model, *settings],
            cwd=folder, check=True,
        )  # fmt: skip
        summaries = sorted(folder.glob(f"runs/{prefix}*/report/summary.json"))
    return _summary(summaries[-1].parents[1])


def _report_of(run: str, folder: Path) -> Path:
    command = [*COMMAND, "run", "report", run]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return folder / done.stdout.strip()


def _summary(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "report" / "summary.json").read_text())
    return summary


if __name__ == "__main__":
    sys.exit(main())
