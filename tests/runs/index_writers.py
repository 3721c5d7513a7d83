"""Writers that make runs and read their index, each with connections of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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
