"""Compares training that samples on servers with training that samples in the trainer.

    python benchmarks/server_learning.py [--seed N] [--steps N] [--cases N] [--servers N]

The task is that of benchmarks/learning.py in float32: SmolLM2-135M as the assistant of a shop.
`sparring train` trains it twice with the same settings and seed: sampled in the trainer, and by
vLLM servers that the run starts on this machine's CPU (`make vllm-venv` installs vLLM).
`sparring eval` plays the held-out cases with both. Bar: both pass rates rise, and their intervals
overlap.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHOP = f"{ROOT / 'examples' / 'shop' / 'shop.py'}:Shop"
PYTHON = Path(os.environ.get("SPARRING_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))
SETTINGS = {
    "num_generations": 8,
    "cases_per_batch": 4,
    "gradient_accumulation_steps": 1,
    "learning_rate": 3e-4,
    "max_completion_length": 80,
    "max_turns": 3,
    "mask_truncated_completions": False,
    "lora": True,
    "dtype": "float32",
    "validation_cases": 0,
    "echo_coefficient": 0.05,
    "engine": {"lr_scheduler_type": "constant"},
}
VARIABLES = {"HF_HUB_OFFLINE": "1"}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--steps", type=int, default=8)
    options.add_argument("--cases", type=int, default=128, help="held-out cases")
    options.add_argument("--servers", type=int, default=2)
    given = options.parse_args()
    if not PYTHON.exists():
        raise SystemExit("vLLM is not installed; run make vllm-venv")
    sampling = {
        "servers": given.servers,
        "command": [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server"],
        "arguments": ["--max-model-len", "1024"],
    }
    with tempfile.TemporaryDirectory() as folder:
        before = held_out(Path(folder), "smollm2", given)
        in_process = train(Path(folder) / "in_process", SETTINGS, given)
        by_servers = train(Path(folder) / "servers", {**SETTINGS, "sampling": sampling}, given)
    one, other = in_process["after"], by_servers["after"]
    overlap = one["low"] <= other["high"] and other["low"] <= one["high"]
    shown = {
        "benchmark": "server_learning",
        "seed": given.seed,
        "steps": given.steps,
        "servers": given.servers,
        "before": before,
        "in_process": in_process,
        "by_servers": by_servers,
        "bar": {"after": "intervals overlap, above before"},
        "ok": overlap and min(one["low"], other["low"]) > before["high"],
    }
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def train(project: Path, settings: dict[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """Train on the shop in a new project; return the held-out pass rate, times and largest gap."""
    project.mkdir()
    started = time.monotonic()
    steps = ["--max-steps", str(given.steps), "--seed", str(given.seed)]
    steps += [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]
    shown = sparring(project, "train", SHOP, "--model", "smollm2", "--no-prove", *steps)
    minutes = (time.monotonic() - started) / 60
    run = project / "runs" / shown["run"]
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "loss" in row]
    gap = "sampling/sampling_logp_difference/max"
    return {
        "after": held_out(project, str(run), given),
        "minutes": round(minutes, 2),
        "seconds_per_step": [round(row["seconds"]) for row in rows],
        "pass_rate_in_training": [round(row["pass_rate/numeric"], 2) for row in rows],
        "largest_gap": max((row[gap] for row in rows if gap in row), default=None),
    }


def held_out(project: Path, model: str, given: argparse.Namespace) -> dict[str, float]:
    """Return the share of held-out cases with a right answer, and its 95 % interval."""
    cases = ["--split", "held-out", "--cases", str(given.cases), "--seed", str(given.seed + 1)]
    limits = ["--max-completion-length", "80", "--max-turns", "3"]
    shown = sparring(project, "eval", SHOP, "--model", model, *cases, *limits)
    rate = shown["measures"]["numeric"]["pass_rate"]
    return {name: round(rate[name], 4) for name in ("value", "low", "high")}


def sparring(project: Path, *arguments: str) -> Any:
    """Run a command in the project; return the JSON that it prints."""
    command = [sys.executable, "-m", "sparring", *arguments, "--json"]
    variables = {**os.environ, **VARIABLES}
    done = subprocess.run(command, cwd=project, env=variables, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
