"""A process that is alive but stalled differs from one that works, by its counters alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sparring
from sparring.run_folder import RunFolder
from sparring.run_folder.events import read_heartbeats
from sparring.run_folder.files import write_json
from sparring.runs import hang_detector
from sparring.runs.hang_detector import HangDetector, describe_hang

OURS = Path(sparring.__file__).resolve().parent
NO_STACKS = "it wrote no stacks; it may be suspended by a signal"


def frame(file: Path | str, line: int, name: str) -> str:
    return f'  File "{file}", line {line} in {name}\n'


LIBRARY = frame(json.__file__, 5, "loads") + frame("/x/site-packages/torch/y.py", 9, "forward")


def test_stacks_of_python_itself_lead_to_the_line(tmp_path: Path) -> None:
    log, script = tmp_path / "worker.log", tmp_path / "shop.py"
    script.write_text(
        "import faulthandler, sys\n"
        "def buy():\n"
        "    faulthandler.dump_traceback(sys.stdout)\n"
        "print('step 3', flush=True)\n"
        "buy()\n"
    )
    with log.open("w") as file:
        subprocess.run([sys.executable, script], stdout=file, check=True)
    text = describe_hang(log)
    assert f"{script}:3 (buy)" in text
    assert text.endswith(f"(all stacks are in {log})")


def test_the_innermost_user_frame_of_each_thread_is_named_once(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    stuck = LIBRARY + frame("/home/me/shop.py", 12, "buy") + frame("/home/me/shop.py", 40, "outer")
    other = frame("/home/me/rules.py", 3, "judge")
    log.write_text(
        f"Thread 0x01 (most recent call first):\n{stuck}\n"
        f"Thread 0x02 (most recent call first):\n{stuck}\n"
        f"Current thread 0x03 (most recent call first):\n{other}"
    )
    expected = "it is in /home/me/shop.py:12 (buy); /home/me/rules.py:3 (judge) "
    assert describe_hang(log) == f"{expected}(all stacks are in {log})"


def test_of_many_threads_only_some_are_named(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    threads = [f"Thread 0x{n}:\n{frame('/home/me/shop.py', n, 'buy')}" for n in range(1, 10)]
    log.write_text("\n".join(threads))
    assert describe_hang(log).count("(buy)") == 4


def test_a_hang_without_user_code_names_our_innermost_frame(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    helper = frame(OURS / "services.py", 8, "probe")
    main = LIBRARY + frame(OURS / "player" / "play.py", 21, "play") + frame(OURS / "a.py", 1, "run")
    log.write_text(f"Thread 0x01:\n{helper}\nCurrent thread 0x02:\n{main}")
    assert f"it is in {OURS}/player/play.py:21 (play) " in describe_hang(log)


def test_a_log_without_stacks_says_so(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text(f"a traceback is no stack\n{frame('/home/me/shop.py', 12, 'buy')}")
    assert describe_hang(log) == NO_STACKS
    log.write_text(f"Thread 0x01:\n{LIBRARY}")
    assert describe_hang(log) == NO_STACKS


class Clock:
    """The real clock, moved on by hand."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(hang_detector, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def beat(folder: RunFolder, rank: int = 0, **fields: Any) -> None:
    heartbeat = {"attempt": 1, "beats": 1, "progress": 1, "doing": "playing", "step": 4, **fields}
    write_json(folder.rank_heartbeat(rank), heartbeat, durable=False)


def look(found: HangDetector, folder: RunFolder) -> None:
    found.note_heartbeats(read_heartbeats(folder, range(2), None))


def detector(ranks: int = 1) -> HangDetector:
    return HangDetector(1, range(ranks), hang_timeout=100, start_timeout=1000)


def test_a_rank_that_beats_without_progress_is_alive_but_stalled(
    tmp_path: Path, clock: Clock
) -> None:
    folder = RunFolder(tmp_path)
    found = detector()
    beat(folder)
    look(found, folder)
    clock.ahead = 90
    beat(folder, beats=2)
    look(found, folder)
    assert found.cause_of_hang() is None
    clock.ahead = 110
    beat(folder, beats=3)
    look(found, folder)
    cause = found.cause_of_hang()
    assert cause is not None
    assert (cause.kind, cause.is_retried) == ("hung", True)
    assert cause.message == (
        "hung at step 4, while playing: the run is alive but stalled; no progress for 100 s"
    )


def test_progress_begins_the_wait_anew(tmp_path: Path, clock: Clock) -> None:
    folder = RunFolder(tmp_path)
    found = detector()
    for progress in range(5):
        clock.ahead += 90
        beat(folder, beats=progress, progress=progress)
        look(found, folder)
        assert found.cause_of_hang() is None


def test_of_several_ranks_the_silent_one_is_named(tmp_path: Path, clock: Clock) -> None:
    folder = RunFolder(tmp_path)
    found = detector(ranks=2)
    beat(folder, 0)
    beat(folder, 1)
    look(found, folder)
    clock.ahead = 110
    beat(folder, 0, beats=2)
    look(found, folder)
    cause = found.cause_of_hang()
    assert cause is not None
    assert "rank 1 sends no heartbeat" in cause.message


def test_a_rank_that_makes_progress_keeps_the_others_from_being_hung(
    tmp_path: Path, clock: Clock
) -> None:
    folder = RunFolder(tmp_path)
    found = detector(ranks=2)
    beat(folder, 0)
    beat(folder, 1)
    look(found, folder)
    clock.ahead = 110
    beat(folder, 0, beats=2, progress=2)
    look(found, folder)
    assert found.cause_of_hang() is None


def test_loading_may_take_longer_than_a_step(tmp_path: Path, clock: Clock) -> None:
    folder = RunFolder(tmp_path)
    found = detector(ranks=2)
    beat(folder, 0)
    beat(folder, 1, doing="loading")
    look(found, folder)
    assert not found.is_working
    clock.ahead = 900
    assert found.cause_of_hang() is None
    clock.ahead = 1100
    cause = found.cause_of_hang()
    assert cause is not None
    assert "no progress for 1000 s" in cause.message


def test_every_rank_must_have_begun(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    found = detector(ranks=2)
    assert not found.is_working
    beat(folder, 0)
    look(found, folder)
    assert not found.is_working
    beat(folder, 1)
    look(found, folder)
    assert found.is_working
    assert found.step == 4


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, "at step 4, while playing"),
        ({"step": None, "doing": "loading"}, "while loading"),
        ({"step": None, "doing": ""}, "before it began"),
    ],
)
def test_the_place_is_the_step_and_what_is_done_there(
    tmp_path: Path, fields: dict[str, Any], place: str
) -> None:
    folder = RunFolder(tmp_path)
    beat(folder, **fields)
    found = detector()
    look(found, folder)
    assert found.place == place


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"attempt":1,"beats":"x","progress":1}'])
def test_a_heartbeat_that_cannot_be_read_is_none(tmp_path: Path, clock: Clock, text: str) -> None:
    folder = RunFolder(tmp_path)
    found = detector()
    beat(folder)
    look(found, folder)
    folder.rank_heartbeat(0).write_text(text)
    clock.ahead = 110
    look(found, folder)
    assert found.place == "at step 4, while playing"
    assert found.cause_of_hang() is not None


def test_a_heartbeat_of_another_attempt_does_not_count(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    beat(folder, attempt=7)
    found = detector()
    look(found, folder)
    assert found.step is None
    assert not found.is_working
