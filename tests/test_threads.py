"""The thread pool for tools and measures: nothing is lost, and what hangs holds up nobody."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextvars import copy_context
from typing import Any

import pytest

from sparring.threads import CURRENT_CALL, DaemonThreads, LoopThread, ThreadUse, run_in_own_loop

SOON = 10  # seconds after which a test fails instead of hanging


@pytest.fixture
def threads() -> Iterator[DaemonThreads]:
    made = DaemonThreads(2)
    yield made
    made.shutdown()


class Blocked:
    """A call that returns when it is released, submitted as a call of this tool."""

    def __init__(self, threads: DaemonThreads, tool: str = "work") -> None:
        self.use = ThreadUse(tool)
        self.release = threading.Event()
        self._began = threading.Event()
        self.future = copy_context().run(self._submit, threads)
        assert self._began.wait(SOON)

    def _submit(self, threads: DaemonThreads) -> Any:
        CURRENT_CALL.set(self.use)
        return threads.submit(self._run)

    def _run(self) -> str:
        self._began.set()
        assert self.release.wait(SOON)
        return "released"

    def end(self) -> None:
        self.release.set()
        assert self.future.result(SOON) == "released"


def test_a_future_has_the_result_or_the_error_of_its_call(threads: DaemonThreads) -> None:
    assert threads.submit(divmod, 7, 2).result(SOON) == (3, 1)
    assert threads.submit(dict, a=1).result(SOON) == {"a": 1}
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result(SOON)


def test_a_tool_that_exits_does_not_end_the_process(threads: DaemonThreads) -> None:
    with pytest.raises(RuntimeError, match="SystemExit was raised: 3"):
        threads.submit(sys.exit, 3).result(SOON)
    assert threads.submit(int, "1").result(SOON) == 1


def test_no_work_is_lost_between_many_short_tasks() -> None:
    threads = DaemonThreads(64)
    for _ in range(200):
        futures = [threads.submit(lambda n=n: n) for n in range(20)]
        assert [future.result(timeout=5) for future in futures] == list(range(20))
    threads.shutdown()


def test_calls_run_at_once_up_to_the_limit_and_the_others_wait(threads: DaemonThreads) -> None:
    meeting = threading.Barrier(2, timeout=SOON)  # needs two threads at once
    running: list[int] = []
    most = []

    def work() -> None:
        meeting.wait()
        running.append(1)
        most.append(len(running))
        meeting.wait()
        running.pop()
        meeting.wait()

    for future in [threads.submit(work) for _ in range(6)]:
        future.result(SOON)
    assert len(most) == 6
    assert max(most) == 2


def test_threads_are_daemons_so_that_a_process_can_end(threads: DaemonThreads) -> None:
    assert threads.submit(lambda: threading.current_thread().daemon).result(SOON)


def test_a_call_that_is_cancelled_while_it_waits_never_runs(threads: DaemonThreads) -> None:
    ran: list[str] = []
    blocked = [Blocked(threads), Blocked(threads)]
    waiting = threads.submit(ran.append, "cancelled")
    last = threads.submit(ran.append, "last")
    assert waiting.cancel()
    for each in blocked:
        each.end()
    last.result(SOON)
    assert ran == ["last"]
    with pytest.raises(CancelledError):
        waiting.result(SOON)


def test_an_abandoned_call_is_hung_until_it_returns(threads: DaemonThreads) -> None:
    blocked = [Blocked(threads, "search"), Blocked(threads, "book")]
    assert threads.hung() == [], "nobody has given them up"
    for each in blocked:
        threads.give_up(each.use)
    assert threads.hung() == ["book", "search"]
    blocked[0].end()
    assert threads.hung() == ["book"]
    blocked[1].end()
    assert threads.hung() == []


def test_a_call_that_has_returned_cannot_hang(threads: DaemonThreads) -> None:
    blocked = Blocked(threads)
    blocked.end()
    threads.give_up(blocked.use)
    assert threads.hung() == []


def test_an_error_frees_a_thread_that_was_given_up(threads: DaemonThreads) -> None:
    use, began, release = ThreadUse("work"), threading.Event(), threading.Event()

    def fail() -> None:
        began.set()
        assert release.wait(SOON)
        raise KeyError("late")

    token = CURRENT_CALL.set(use)
    future = threads.submit(fail)
    CURRENT_CALL.reset(token)
    assert began.wait(SOON)
    threads.give_up(use)
    assert threads.hung() == ["work"]
    release.set()
    with pytest.raises(KeyError):
        future.result(SOON)
    assert threads.hung() == []


def test_shutdown_ends_idle_threads_and_does_not_wait_for_hung_ones() -> None:
    threads = DaemonThreads(2)
    blocked = Blocked(threads)
    idle = threads.submit(threading.current_thread).result(SOON)
    threads.shutdown(wait=True)
    idle.join(SOON)
    assert not idle.is_alive()
    assert not blocked.future.done()
    blocked.end()


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
