"""Measures the time from `sparring train --detach` to the run's id, and to its first step.

    python benchmarks/starting.py [--quick]

Bars: on the tiny model, the id within 1.5 s, if the environment has been described before (the
first description of a file takes a separate process, and is printed as well); on SmolLM2-135M, the
end of the first step within 1.25 times the time of a plain `python train.py` on TRL. Both
alternate, and are measured from the start of the command; medians. `--quick` uses only the tiny
model, whose time is mostly imports, and prints its ratio without a bar; its id may take 3 s.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sparring.models.cache import development_model
from sparring.operations.operation import Caller, Role
from sparring.operations.run_control import stop_run
from sparring.operations.run_views import RunQuery
from sparring.operations.runs import show_run
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_lines

ID_BAR, RATIO_BAR = 1.5, 1.25
QUICK_BAR = 3.0  # for one measurement on a machine that may be busy
PLAIN = Path(__file__).resolve().parent / "plain"
SPARRING = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]


def bare(model: str, place: Path) -> float:
    started = time.perf_counter()
    command = [sys.executable, str(PLAIN / "bare_train.py"), model, str(place / "bare")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)
    assert "first step" in done.stdout, done.stderr[-2000:]
    return time.perf_counter() - started


def ours(environment: str, model: str, place: Path) -> tuple[float, float]:
    """Return the seconds until the id is printed, and until the metrics have the first step."""
    started = time.perf_counter()
    command = [*SPARRING, "train", environment, "--model", model, "--no-prove", "--detach"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)
    answered = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    folder = RunFolder(place / "runs" / done.stdout.strip())
    caller = Caller(Role.OWNER, place / "runs", folder=place)
    while not any("loss" in row for row in read_lines(folder.metrics)):
        assert time.perf_counter() - started < 300
        time.sleep(0.02)
    stepped = time.perf_counter() - started
    stop_run(RunQuery(run=folder.id), caller)
    while not show_run(RunQuery(run=folder.id), caller).state.has_ended:
        time.sleep(0.1)
    return answered, stepped


def measure(name: str, environment: str, place: Path, rounds: int) -> dict[str, Any]:
    model = str(development_model(name))
    first_answered = ours(environment, model, place)[0]
    answered, stepped, alone = [], [], []
    for _ in range(rounds):
        seconds = ours(environment, model, place)
        answered.append(seconds[0])
        stepped.append(seconds[1])
        alone.append(bare(model, place))
    return {
        "answered_at_first_look": round(first_answered, 2),
        "answered": round(statistics.median(answered), 2),
        "first_step": round(statistics.median(stepped), 2),
        "first_step_of_bare_trl": round(statistics.median(alone), 2),
        "ratio": round(statistics.median(stepped) / statistics.median(alone), 3),
    }


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    is_quick = arguments.parse_args().quick
    os.environ["HF_HUB_OFFLINE"] = "1"
    shown: dict[str, Any] = {
        "benchmark": "starting",
        "bars": {"answered": ID_BAR, "ratio": RATIO_BAR},
    }
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copy(PLAIN / "plain_talk.py", place)
        shown["tiny"] = measure("tiny", "plain_tiny", place, 1 if is_quick else 3)
        is_ok = shown["tiny"]["answered"] <= (QUICK_BAR if is_quick else ID_BAR)
        if not is_quick:
            shown["smollm2"] = measure("smollm2", "plain_talk", place, 3)
            is_ok = is_ok and shown["smollm2"]["ratio"] <= RATIO_BAR
    shown["ok"] = is_ok
    print(json.dumps(shown))
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
