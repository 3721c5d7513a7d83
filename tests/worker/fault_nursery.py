"""Trainings that are killed at the worst moments, each in a process of its own.

`python -m tests.worker.fault_nursery TINY RUNS SCENARIO` prints what the runs ended with, as
JSON. Everything is imported once and every attempt is a fork, so that twenty kills take
seconds, not minutes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from sparring.engine.checkpoints import Checkpoints
from sparring.engine.grpo import PolicyTrainer
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_lines
from tests.training import trainer, weights_digest

FORK = multiprocessing.get_context("fork")
SETTINGS = {"max_steps": 8, "checkpoint_steps": 2, "validation_cases": 4, "lora": {"r": 4}}
# Where a save can be cut off, and the method whose call is that moment.
POINTS: dict[str, tuple[type, str]] = {
    "before anything is written": (PolicyTrainer, "_save_checkpoint"),
    "between weights and optimizer": (PolicyTrainer, "_save_optimizer_and_scheduler"),
    "between optimizer and random state": (PolicyTrainer, "_save_rng_state"),
    "before the manifest": (Checkpoints, "seal"),
    "before the rename": (Checkpoints, "_put_in_place"),
    "before the old ones are pruned": (Checkpoints, "prune"),
}


def attempt(tiny: Path, runs: Path, run: str, kill_at: str | None = None) -> None:
    """One attempt in this process; with `kill_at`, killed in the second save."""
    if kill_at is not None:
        owner, name = POINTS[kill_at]
        original = getattr(owner, name)
        reached = 0

        def die(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal reached
            reached += 1
            if reached == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, *args, **kwargs)

        setattr(owner, name, die)
    trainer(tiny, runs, run=run, **SETTINGS).train()


def forked(*args: Any) -> Any:
    child = FORK.Process(target=attempt, args=args)
    child.start()
    return child


def finish(tiny: Path, runs: Path, run: str) -> str:
    """Go on to the end; the digest of the final weights."""
    child = forked(tiny, runs, run)
    child.join(120)
    assert child.exitcode == 0, f"{run} ended with {child.exitcode}"
    return weights_digest(RunFolder(runs / run))


def kill_in_saves(tiny: Path, runs: Path) -> dict[str, Any]:
    ended = {}
    for number, point in enumerate(POINTS):
        child = forked(tiny, runs, f"cut-{number}", point)
        child.join(120)
        assert child.exitcode == -signal.SIGKILL, (point, child.exitcode)
        ended[point] = finish(tiny, runs, f"cut-{number}")
    return ended


def kill_at_random(tiny: Path, runs: Path) -> dict[str, Any]:
    """Twenty kills in all, over as many runs as it takes; each run ends in the end."""
    drawn = random.Random(7)
    ended, kills, number = {}, 0, 0
    while kills < 20:
        run = f"random-{number}"
        for _ in range(3):
            child = forked(tiny, runs, run)
            child.join(drawn.uniform(0.2, 2.5))
            if child.exitcode is not None:
                break
            child.kill()
            child.join()
            kills += 1
        ended[run] = finish(tiny, runs, run)
        number += 1
    return {**ended, "kills": kills}


def terminate(tiny: Path, runs: Path) -> dict[str, Any]:
    """SIGTERM in the middle; then what was told, and how it ended."""
    child = forked(tiny, runs, "terminated")
    metrics = RunFolder(runs / "terminated").metrics
    deadline = time.monotonic() + 60
    while not any(row.get("step", 0) >= 3 for row in read_lines(metrics)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGTERM)
    child.join(60)
    events = [event["event"] for event in read_lines(RunFolder(runs / "terminated").events)]
    last = max(row["step"] for row in read_lines(metrics))
    saved = [path.name for path in (runs / "terminated" / "checkpoints").glob("step-*")]
    return {
        "exit": child.exitcode,
        "told": events[-1],
        "saved": f"step-{last}" in saved,
        "before_the_end": last < SETTINGS["max_steps"],
        "digest": finish(tiny, runs, "terminated"),
    }


SCENARIOS = {"saves": kill_in_saves, "random": kill_at_random, "terminate": terminate}

if __name__ == "__main__":
    tiny_folder, runs_folder = Path(sys.argv[1]), Path(sys.argv[2])
    undisturbed = finish(tiny_folder, runs_folder, "undisturbed")
    shown = SCENARIOS[sys.argv[3]](tiny_folder, runs_folder)
    print(json.dumps({"undisturbed": undisturbed, "ended": shown}))
