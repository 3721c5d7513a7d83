"""`python -m tests.runs.index_writers RUNS FIRST LAST COUNT FILE`: one host that writes runs and
reads their index. Its writers are threads, each with connections of its own."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.runs.index import Index, Query
from sparring.runs.lifecycle import RunState


def make(runs: Path, name: str, environment: str = "bell") -> RunFolder:
    """A run that is queued."""
    folder = RunFolder(runs / name)
    folder.create({"format": 1, "kind": "train", "environment": environment})
    append_state(folder, RunState.QUEUED, author="test")
    return folder


def write_many(runs: Path, writer: int, count: int) -> None:
    for number in range(count):
        folder = make(runs, f"w{writer}-{number}")
        append_state(folder, RunState.STARTING, author="test", epoch=1)
        Index(runs).page(Query(count=5))
        append_state(folder, RunState.FAILED, author="test", epoch=1)


def write_from_here(runs: Path, writers: list[int], count: int) -> None:
    with ThreadPoolExecutor(len(writers)) as pool:
        for done in [pool.submit(write_many, runs, writer, count) for writer in writers]:
            done.result()


def rows_of(index: Index) -> list[str]:
    """All rows, as text that can be compared between processes."""
    return [json.dumps(asdict(row), default=str, sort_keys=True) for row in index.all()]


if __name__ == "__main__":
    runs, (first, last, count), file = Path(sys.argv[1]), map(int, sys.argv[2:5]), sys.argv[5]
    if count:
        write_from_here(runs, list(range(first, last)), count)
    index = Index(runs)
    index.refresh()
    Path(file).write_text(json.dumps(rows_of(index)))
