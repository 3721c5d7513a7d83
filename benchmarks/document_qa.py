"""Trains SmolLM2-135M to answer questions over documents; plays held-out cases before and after.

    python benchmarks/document_qa.py [--folder FOLDER]

Training is a warm start on 48 demonstrations, then GRPO with LoRA, and takes about an hour on two
otherwise idle cores. With `--folder`, reuses the results that are already in the folder. No bar:
the page of the example has the figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from environments import COMMAND, figures

HERE = Path(__file__).resolve().parents[1] / "examples" / "document_qa"
ENVIRONMENT = str(HERE / "document_qa.py")
TRAINING = {
    "warm-start": HERE / "demonstrations.jsonl", "max-steps": 20, "cases-per-batch": 4,
    "gradient-accumulation-steps": 1, "num-generations": 8, "learning-rate": 2e-4,
    "temperature": 1.0, "validation-cases": 32, "save-steps": 5,
}  # fmt: skip
SET = ("per_device_train_batch_size=8", "mask_truncated_completions=false",
       "warm_start.num_train_epochs=2")  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path)
    given = options.parse_args().folder
    with tempfile.TemporaryDirectory() as place:
        folder = given or Path(place)
        before = load_or_run(folder / "before.json", "eval", ENVIRONMENT, "--split", "held-out")
        trained = load_or_run(
            folder / "train.json", "train", ENVIRONMENT, "--no-prove", "--lora", *train_options()
        )
        weights = trained["best_checkpoint"] or trained["last_checkpoint"]
        after = load_or_run(
            folder / "after.json", "eval", ENVIRONMENT, "--split", "held-out", "--model", weights
        )
    shown = {
        "benchmark": "document_qa", "model": "smollm2", "steps": trained["steps"],
        "minutes": round(trained["seconds"] / 60, 1), "checkpoint": Path(weights).name,
        "validation": {row["step"]: round(row["reward"], 3) for row in trained["validation"]},
        "before": figures(before), "after": figures(after),
    }  # fmt: skip
    print(json.dumps(shown))
    return 0


def train_options() -> list[str]:
    options = [part for name, value in TRAINING.items() for part in (f"--{name}", str(value))]
    return [*options, *(part for each in SET for part in ("--set", each))]


def load_or_run(place: Path, *command: str) -> dict[str, Any]:
    """Return the result in the file; if there is none, run the command and save its result."""
    if not place.is_file():
        done = subprocess.run(
            [*COMMAND, *command, "--json"], cwd=place.parent, stdout=subprocess.PIPE, text=True,
            check=True,
        )  # fmt: skip
        place.write_text(done.stdout)
    return json.loads(place.read_text())


if __name__ == "__main__":
    sys.exit(main())
