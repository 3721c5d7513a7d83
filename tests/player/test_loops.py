"""Coroutines run from synchronous code to their end, and nothing goes on behind it."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from sparring.player.loops import LoopThread, run_in_own_loop


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


async def name_of_thread() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def fail() -> None:
    raise KeyError("broken")


async def cancel_itself() -> None:
    raise asyncio.CancelledError


def test_without_a_running_loop_work_runs_in_this_thread() -> None:
    assert run_in_own_loop(name_of_thread()) == threading.current_thread().name


def test_inside_a_running_loop_work_runs_in_a_thread_of_its_own() -> None:
    async def notebook() -> str:
        return run_in_own_loop(name_of_thread())

    assert asyncio.run(notebook()) == "sparring-player"


def test_a_failure_inside_a_running_loop_reaches_the_caller() -> None:
    async def notebook() -> None:
        run_in_own_loop(fail())

    with pytest.raises(KeyError, match="broken"):
        asyncio.run(notebook())


def test_a_loop_thread_keeps_one_loop_for_all_work(thread: LoopThread) -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    first, second = thread.run(loop()), thread.run(loop())
    assert first is second
    assert thread.run(name_of_thread()) == "sparring-player"


def test_a_loop_thread_works_inside_a_running_loop(thread: LoopThread) -> None:
    async def notebook() -> str:
        return thread.run(name_of_thread())

    assert asyncio.run(notebook()) == "sparring-player"


def test_a_failure_in_a_loop_thread_reaches_the_caller_and_ends_nothing_else(
    thread: LoopThread,
) -> None:
    with pytest.raises(KeyError, match="broken"):
        thread.run(fail())
    with pytest.raises(asyncio.CancelledError):
        thread.run(cancel_itself())
    assert thread.run(name_of_thread()) == "sparring-player"


def test_a_closed_loop_thread_is_gone() -> None:
    made = LoopThread()
    loop = made.run(_running_loop())
    made.close()
    assert loop.is_closed()
    assert not made._thread.is_alive()


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_ctrl_c_in_a_loop_thread_waits_until_the_work_has_ended(thread: LoopThread) -> None:
    ended: list[bool] = []
    main = threading.main_thread().ident
    assert main is not None

    async def work() -> None:
        try:
            signal.pthread_kill(main, signal.SIGINT)  # `run` may not wait for the work yet
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for count in range(1, 21):
        with pytest.raises(KeyboardInterrupt):
            thread.run(work())
        assert len(ended) == count


def test_ctrl_c_in_a_notebook_leaves_nothing_running() -> None:
    """The caller is interrupted while its own loop runs; the work must end before it goes on."""
    ticks: list[int] = []

    async def work() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def notebook() -> None:
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        run_in_own_loop(work())

    signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = asyncio.new_event_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(notebook())
    loop.close()
    seen = len(ticks)
    time.sleep(0.1)
    assert len(ticks) == seen
