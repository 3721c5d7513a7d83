"""Train SmolLM2-135M to answer questions over documents, and play held-out cases before and after.

    python benchmarks/document_qa.py [--folder FOLDER]

A warm start on 48 demonstrations, then GRPO with LoRA, about an hour on two cores that do nothing
else. With a folder, runs that are there already are not made again. No bar: what comes out is in
the page of the example.
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
    "temperature": 1.0, "validation-cases": 32, "checkpoint-steps": 5,
}  # fmt: skip
SET = ("per_device_train_batch_size=8", "mask_truncated_completions=false",
       "warm_start.num_train_epochs=2")  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path)
    given = options.parse_args().folder
    with tempfile.TemporaryDirectory() as place:
        folder = given or Path(place)
        before = known_or(folder / "before.json", "eval", ENVIRONMENT, "--split", "held-out")
        trained = known_or(
            folder / "train.json", "train", ENVIRONMENT, "--no-prove", "--lora", *training()
        )
        weights = trained["best_checkpoint"] or trained["last_checkpoint"]
        after = known_or(
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


def training() -> list[str]:
    words = [word for name, value in TRAINING.items() for word in (f"--{name}", str(value))]
    return [*words, *(word for each in SET for word in ("--set", each))]


def known_or(place: Path, *command: str) -> dict[str, Any]:
    """The result in a file, or of the command, which is then kept there."""
    if not place.is_file():
        done = subprocess.run(
            [*COMMAND, *command, "--json"], cwd=place.parent, stdout=subprocess.PIPE, text=True,
            check=True,
        )  # fmt: skip
        place.write_text(done.stdout)
    return json.loads(place.read_text())


if __name__ == "__main__":
    sys.exit(main())
