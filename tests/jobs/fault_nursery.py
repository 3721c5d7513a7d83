"""Trainings that are killed at the worst moments, each in a process of its own.

`python -m tests.jobs.fault_nursery TINY RUNS SCENARIO` prints what the runs ended with, as
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparring.engine import trainer
from sparring.engine.trainer import PolicyTrainer
from sparring.learning.checkpoints import Checkpoints
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_lines
from tests.jobs.porter import porter
from tests.training import weights_digest

FORK = multiprocessing.get_context("fork")
# Everything on that could break exactness.
SETTINGS = {
    "max_steps": 8,
    "save_steps": 2,
    "validation_cases": 4,
    "lora": {"r": 4},
    "beta": 0.1,
    "echo_coefficient": 0.05,
    "replacement_groups": 2,
    "draw_by_difficulty": True,
    "warm_start": {"num_train_epochs": 1},
}
# Where a run can be cut off: the call that is that moment, and which one of them.
POINTS: dict[str, tuple[Any, str, int]] = {
    "before the warm start is saved": (trainer, "save_start", 1),
    "behind the warm start": (trainer, "use_as_reference", 1),
    "before anything is written": (PolicyTrainer, "_save_checkpoint", 2),
    "between weights and optimizer": (PolicyTrainer, "_save_optimizer_and_scheduler", 2),
    "between optimizer and random state": (PolicyTrainer, "_save_rng_state", 2),
    "before the manifest": (Checkpoints, "seal", 3),
    "before the rename": (Checkpoints, "_put_in_place", 3),
    "before the old ones are pruned": (Checkpoints, "prune", 2),
}


def attempt(tiny: Path, runs: Path, run: str, kill_at: str | None = None) -> None:
    """One attempt in this process; with `kill_at`, killed there."""
    if kill_at is not None:
        owner, name, number = POINTS[kill_at]
        original = getattr(owner, name)
        reached = 0

        def die(*args: Any, **kwargs: Any) -> Any:
            nonlocal reached
            reached += 1
            if reached == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        setattr(owner, name, die)
    porter(tiny, runs, run=run, **SETTINGS).train()


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


def kill_in_saves(tiny: Path, runs: Path, points: Sequence[str] = tuple(POINTS)) -> dict[str, Any]:
    ended = {}
    for number, point in enumerate(points):
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
    """SIGTERM in the middle; then the last event, and how it ended."""
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
        "event": events[-1],
        "saved": f"step-{last}" in saved,
        "before_the_end": last < SETTINGS["max_steps"],
        "digest": finish(tiny, runs, "terminated"),
    }


def kill_in_a_few_saves(tiny: Path, runs: Path) -> dict[str, Any]:
    """One moment each of a warm start, of writing a checkpoint, and of putting it in place."""
    points = ("behind the warm start", "between weights and optimizer", "before the rename")
    return kill_in_saves(tiny, runs, points)


SCENARIOS = {
    "few saves": kill_in_a_few_saves,
    "saves": kill_in_saves,
    "random": kill_at_random,
    "terminate": terminate,
}

if __name__ == "__main__":
    warm_folder, runs_folder = Path(sys.argv[1]), Path(sys.argv[2])
    undisturbed = finish(warm_folder, runs_folder, "undisturbed")
    shown = SCENARIOS[sys.argv[3]](warm_folder, runs_folder)
    used = list(read_lines(RunFolder(runs_folder / "undisturbed").metrics))
    print(
        json.dumps(
            {
                "undisturbed": undisturbed,
                "ended": shown,
                "calls": max(row.get("call_rate", 0) for row in used),
                "env_loss": any("env_loss" in row for row in used),
                "replaced": sum(row.get("replaced_groups", 0) for row in used),
            }
        )
    )
