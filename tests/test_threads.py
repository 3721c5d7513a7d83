"""The thread pool for tools and measures: nothing is lost, and what hangs holds up nobody."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextvars import copy_context
from typing import Any

import pytest

from sparring.threads import CURRENT_CALL, DaemonThreads, ThreadUse

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
