"""Measures what listing runs costs with 1,000, 10,000 and 100,000 of them, and under load.

    python benchmarks/run_index.py [--quick]

Bars: a listing (newest 50, by state, by environment) takes at most 50 ms at the 95th percentile at
each size; reconciling 200 active runs whose supervisors are alive takes at most 1 s; 50 processes
that write and read at the same time lose no write. `--quick` stops at 10,000 runs and 12 processes,
and allows three times the bars.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sparring.operations.operation import Caller, Role
from sparring.operations.run_views import ListRuns
from sparring.operations.runs import list_runs
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.run_folder.files import write_json
from sparring.runs.claims import claim
from sparring.runs.index import Index, Query
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import identity_of, since_boot
from sparring.runs.queue import reconcile

LIST_BAR, RECONCILE_BAR = 0.050, 1.0
ENVIRONMENTS = [f"environment-{number}" for number in range(20)]
SPAWN = multiprocessing.get_context("spawn")


def make_ended(runs: Path, first: int, last: int) -> None:
    """Write the folders of ended runs, each with all of its events at once."""
    for number in range(first, last):
        folder = runs / f"run-{number:06d}"
        folder.mkdir()
        environment = ENVIRONMENTS[number % len(ENVIRONMENTS)]
        spec = {"format": 1, "kind": "train", "environment": environment, "policy": {}}
        (folder / "spec.json").write_text(json.dumps(spec))
        ended = "failed" if number % 10 == 0 else "completed"
        states = [("queued", {}), ("starting", {"epoch": 1}), ("running", {"epoch": 1})]
        states += [(ended, {"epoch": 1, "exit_code": 0})]
        lines = [
            json.dumps({"event": "state", "time": 1e9 + number, "state": state, **fields})
            for state, fields in states
        ]
        (folder / "events.jsonl").write_text("\n".join(lines) + "\n")


def p95(work: Callable[[], object], times: int) -> float:
    took = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        took.append(time.perf_counter() - started)
    return sorted(took)[int(0.95 * len(took))]


def listings(caller: Caller, times: int) -> dict[str, float]:
    queries = {
        "newest": ListRuns(count=50),
        "by_state": ListRuns(count=50, states=(RunState.FAILED,)),
        "by_environment": ListRuns(count=50, environment=ENVIRONMENTS[3]),
    }
    return {
        name: round(p95(lambda query=query: list_runs(query, caller), times), 4)
        for name, query in queries.items()
    }


def beat(runs: Path, count: int, ready: object, done: object) -> None:
    """Create active runs, and write the heartbeats of their supervisors until `done` is set."""
    folders = []
    for number in range(count):
        folder = RunFolder(runs / f"active-{number:03d}")
        folder.create({"format": 1, "kind": "train", "environment": "live", "policy": {}})
        append_state(folder, RunState.QUEUED, author="benchmark")
        claim(folder, 1)
        me = identity_of(os.getpid()).to_dict()
        write_json(folder.launch, {"format": 1, "since_boot": since_boot(), **me}, durable=False)
        for state in (RunState.STARTING, RunState.RUNNING):
            append_state(folder, state, author="benchmark", epoch=1)
        folders.append(folder)
    while not done.is_set():
        me = identity_of(os.getpid()).to_dict()
        for folder in folders:
            heartbeat = {"format": 1, "since_boot": since_boot(), "seconds": 1.0, **me}
            write_json(folder.supervisor, heartbeat, durable=False)
            progress = {"format": 1, "step": 1, "steps": 9, "metrics": {"reward": 0.5}}
            write_json(folder.heartbeat, progress, durable=False)
        ready.set()
        time.sleep(0.5)


def write(runs: Path, writer: int, count: int) -> None:
    """Create runs, change their states, and list runs in between."""
    for number in range(count):
        folder = RunFolder(runs / f"writer{writer:02d}-{number:03d}")
        folder.create({"format": 1, "kind": "eval", "environment": "busy", "policy": {}})
        append_state(folder, RunState.QUEUED, author="benchmark")
        append_state(folder, RunState.STARTING, author="benchmark", epoch=1)
        if number % 4 == 0:
            Index(runs).page(Query(count=10))
        append_state(folder, RunState.FAILED, author="benchmark", epoch=1)


def under_load(runs: Path, writers: int, each: int) -> int:
    """Return how many runs the index lacks or has in an old state, plus how many writers failed."""
    processes = [
        SPAWN.Process(target=write, args=(runs, number, each)) for number in range(writers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    index = Index(runs)
    index.refresh()
    found = [row for row in index.all() if row.id.startswith("writer")]
    complete = [row for row in found if row.state is RunState.FAILED]
    return writers * each - len(complete) + sum(process.exitcode != 0 for process in processes)


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    is_quick = arguments.parse_args().quick
    sizes = (1_000, 10_000) if is_quick else (1_000, 10_000, 100_000)
    slack = 3 if is_quick else 1  # of 40 listings, the second slowest decides
    bar, reconcile_bar = slack * LIST_BAR, slack * RECONCILE_BAR
    shown: dict[str, object] = {"benchmark": "run_index", "lists_p95": {}, "reindex_seconds": {}}
    is_ok = True
    with tempfile.TemporaryDirectory() as place:
        runs = Path(place) / "runs"
        runs.mkdir()
        caller = Caller(Role.OWNER, runs, folder=Path(place))
        made = 0
        for size in sizes:
            make_ended(runs, made, size)
            made = size
            started = time.perf_counter()
            Index(runs).reindex()
            shown["reindex_seconds"][str(size)] = round(time.perf_counter() - started, 1)
            times = listings(caller, 40 if is_quick else 100)
            shown["lists_p95"][str(size)] = times
            is_ok = is_ok and max(times.values()) <= bar
            print(size, times, file=sys.stderr, flush=True)
        ready, done = SPAWN.Event(), SPAWN.Event()
        beating = SPAWN.Process(target=beat, args=(runs, 200, ready, done))
        beating.start()
        ready.wait()
        index = Index(runs)
        index.refresh()
        shown["reconcile_200_p95"] = round(p95(lambda: reconcile(index), 10), 3)
        shown["list_with_200_active_p95"] = listings(caller, 20)["newest"]
        done.set()
        beating.join()
        writers = 12 if is_quick else 50
        shown |= {"writers": writers, "lost": under_load(runs, writers, 8)}
    shown["bars"] = {"list": bar, "reconcile": reconcile_bar, "lost": 0}
    shown["ok"] = is_ok and shown["reconcile_200_p95"] <= reconcile_bar and not shown["lost"]
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
