"""A run has one writer, and a worker whose run is taken away ends itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import SparringError
from sparring.contracts.rollouts import TokenUse
from sparring.jobs import worker
from sparring.jobs.worker import (
    SUPERSEDED,
    Heartbeat,
    PlayClock,
    Progress,
    ProgressHeartbeat,
    hold_run,
    report_event,
    supervised_attempt,
)
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, read_lines
from sparring.runs.claims import is_held
from tests.rollouts import rollout


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1, "kind": "eval"})
    return made


def test_a_second_writer_is_refused_and_the_next_one_is_not(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_TRIES", 2)
    with (
        hold_run(folder),
        pytest.raises(SparringError, match="run run is in use by another process"),
        hold_run(folder),
    ):
        pass
    with hold_run(folder):
        pass


def test_a_run_is_free_again_when_its_writer_fails(folder: RunFolder) -> None:
    with pytest.raises(ZeroDivisionError), hold_run(folder):
        raise ZeroDivisionError
    with hold_run(folder):
        pass


def test_a_worker_takes_a_run_while_others_test_its_lock(folder: RunFolder) -> None:
    """Whoever asks holds the lock for an instant; a worker that starts then must not give up."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            is_held(folder)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(200):
            with hold_run(folder):
                pass
    finally:
        stop.set()
        asking.join()


def test_an_event_names_its_attempt_where_there_is_a_supervisor(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARRING_ATTEMPT", raising=False)
    assert supervised_attempt() is None
    report_event(folder, "note", message="alone")
    monkeypatch.setenv("SPARRING_ATTEMPT", "3")
    assert supervised_attempt() == 3
    report_event(folder, "note", message="supervised")
    alone, supervised = read_lines(folder.events)
    assert "attempt" not in alone
    assert (supervised["attempt"], supervised["author"]) == (3, "worker")
    assert supervised["message"] == "supervised"


def test_without_a_supervisor_the_worker_announces_that_the_state_has_changed(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def announced() -> list[str]:
        return [line["run"] for line in read_lines(folder.journal)]

    monkeypatch.delenv("SPARRING_ATTEMPT", raising=False)
    report_event(folder, "note", message="no change of state")
    assert announced() == []
    report_event(folder, "completed")
    assert announced() == ["run"]
    monkeypatch.setenv("SPARRING_ATTEMPT", "1")
    report_event(folder, "completed")
    assert announced() == ["run"]


PROGRAM = """
    import sys, time
    from pathlib import Path
    from sparring.run_folder import RunFolder
    from sparring.jobs.worker import Heartbeat
    Heartbeat(RunFolder(Path(sys.argv[1])), 0, 1).begin()
    print("on", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("loss", ["gone", "another"])
def test_a_worker_ends_when_its_folder_is_gone_or_another(tmp_path, loss):
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create({"format": 1, "kind": "train"})
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder.path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    worker.stdout.readline()
    (tmp_path / "runs").rename(tmp_path / "moved")
    if loss == "another":
        folder.create({"format": 1, "kind": "train"})
    assert worker.wait(timeout=30) == SUPERSEDED
    if loss == "gone":
        assert not (tmp_path / "runs").exists()
    else:
        assert not folder.rank_heartbeat(0).exists()
    shutil.rmtree(tmp_path / "moved")


def test_a_beat_makes_no_folder_that_was_taken_away(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create({"format": 1, "kind": "train"})
    heartbeat = Heartbeat(folder, 0, None)
    shutil.rmtree(folder.path)
    heartbeat.note("playing")
    time.sleep(0.06)
    heartbeat.note("playing")
    assert not folder.path.exists()


def test_a_rank_makes_its_heartbeat_before_rank_0_makes_the_folder(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "one")
    heartbeat = Heartbeat(folder, 1, None)
    folder.create({"format": 1, "kind": "train"})
    heartbeat.begin()
    heartbeat.end()
    assert folder.rank_heartbeat(1).exists()


def test_a_rank_that_is_ahead_of_rank_0_makes_no_folder(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "one")
    Heartbeat(folder, 1, None).note("loading")
    assert not folder.path.exists()


def written(folder: RunFolder) -> dict[str, Any]:
    beat: dict[str, Any] = read_json(folder.heartbeat)
    return beat


def test_only_the_full_reward_counts_as_passed() -> None:
    progress = Progress(total=4)
    for reward in (1.0, 0.5, 0.0, None):
        progress.count(rollout("x", reward=reward, tokens=TokenUse(7, 3)))
    assert (progress.rollouts, progress.passed, progress.sampled_tokens) == (4, 1, 12)


def test_tokens_of_rollouts_that_still_play_and_of_earlier_attempts_are_shown(
    folder: RunFolder,
) -> None:
    progress = Progress(total=10, rollouts=2, sampled_tokens=30)
    beat = ProgressHeartbeat(folder, progress, lambda: 25)
    beat.write()
    assert written(folder)["sampled_tokens"] == 30
    beat.earlier_tokens = 30
    beat.write()
    assert written(folder)["sampled_tokens"] == 55


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(worker.time, "monotonic", lambda: clock[0])
    return clock


def test_time_left_is_estimated_by_the_pace_of_this_process_alone(
    folder: RunFolder, now: list[float]
) -> None:
    progress = Progress(total=20, rollouts=10)  # an earlier attempt has played ten
    beat = ProgressHeartbeat(folder, progress, lambda: 0)
    now[0] += 50.0  # the model is loaded
    beat.start_clock()
    beat.write()
    assert written(folder)["seconds_left"] is None
    now[0] += 8.0
    progress.rollouts += 2
    beat.write()
    assert written(folder)["seconds_left"] == 32.0  # eight are left, at four seconds each


def test_the_first_rollouts_of_a_block_give_no_estimate(now: list[float]) -> None:
    clock = PlayClock(block=32)
    clock.start(0)
    now[0] += 16.0
    assert clock.left(1, 352) is None
    now[0] += 48.0
    assert clock.left(32, 352) == 640.0  # 64 s for each of ten more blocks
    now[0] += 32.0
    assert clock.left(40, 352) == 608.0


def test_the_time_left_grows_while_a_block_takes_longer_than_those_before(
    now: list[float],
) -> None:
    clock = PlayClock(block=10)
    clock.start(0)
    now[0] += 10.0
    assert clock.left(10, 40) == 30.0
    now[0] += 30.0
    assert clock.left(10, 40) == 40.0  # 20 rollouts in 40 s at best, and 20 more


def test_after_the_last_rollout_only_the_rest_is_left(now: list[float]) -> None:
    clock = PlayClock(block=10)
    clock.start(0)
    now[0] += 10.0
    assert clock.left(10, 10) is None
    clock.rest = 5
    assert clock.left(10, 10) == 5.0


def test_a_time_limit_bounds_the_time_left(now: list[float]) -> None:
    clock = PlayClock(block=10, limit=300.0)
    clock.start(0)
    now[0] += 100.0
    assert clock.left(10, 192) == 200.0


def test_after_the_play_the_time_left_is_the_estimate_of_the_rest(
    folder: RunFolder,
) -> None:
    beat = ProgressHeartbeat(folder, Progress(total=1), lambda: 0)

    async def play() -> None:
        async with beat.running():
            beat.left = 40.0

    asyncio.run(play())
    assert written(folder)["seconds_left"] == 40.0


def test_progress_is_written_from_the_beginning_to_the_end(folder: RunFolder) -> None:
    progress = Progress(total=3)
    beat = ProgressHeartbeat(folder, progress, lambda: 0)

    async def play() -> dict[str, Any]:
        async with beat.running():
            await asyncio.sleep(0)
            first = written(folder)
            progress.count(rollout("x", reward=1.0))
        return first

    first = asyncio.run(play())
    assert (first["rollouts"], first["pid"]) == (0, os.getpid())
    assert (written(folder)["rollouts"], written(folder)["passed"]) == (1, 1)


def test_a_stop_request_cancels_the_play_and_leaves_the_last_progress(folder: RunFolder) -> None:
    progress = Progress(total=3)
    folder.stop_request.write_text("{}")

    async def play() -> None:
        async with ProgressHeartbeat(folder, progress, lambda: 0).running():
            progress.count(rollout("x", reward=1.0))
            await asyncio.sleep(30)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(play())
    assert written(folder)["rollouts"] == 1
