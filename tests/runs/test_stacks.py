"""A hang is located in the user's code, from the stacks that a process left in its log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import sparring
from sparring.runs.stacks import describe_hang

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
    told = describe_hang(log)
    assert f"{script}:3 (buy)" in told
    assert told.endswith(f"(all stacks are in {log})")


def test_the_innermost_frame_of_each_thread_is_told_once(tmp_path: Path) -> None:
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


def test_many_threads_are_told_in_part(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    threads = [f"Thread 0x{n}:\n{frame('/home/me/shop.py', n, 'buy')}" for n in range(1, 10)]
    log.write_text("\n".join(threads))
    assert describe_hang(log).count("(buy)") == 4


def test_without_user_code_our_innermost_frame_of_the_main_thread_is_told(tmp_path: Path) -> None:
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
