"""Threads: a pool for synchronous user code, and event loops for synchronous callers. A leaf.

The SDK runs synchronous tools in the event loop's default executor, which has six threads on a
machine with two cores. The size of this pool is set by its owner. Its threads are daemons, so that
user code that never returns does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")
_CANCEL_SECONDS = 10.0
CURRENT_CALL: ContextVar[ThreadUse | None] = ContextVar("sparring_current_call", default=None)


@dataclass(slots=True, eq=False)
class ThreadUse:
    """Records whether a tool call currently runs on a thread."""

    tool: str
    is_running: bool = False


class DaemonThreads(ThreadPoolExecutor):
    """An executor that starts up to `most` daemon threads on demand, and tracks hung calls."""

    def __init__(self, most: int) -> None:
        super().__init__(max_workers=1)  # starts no threads, because `submit` is overridden
        self._most = most
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._alive = self._idle = 0
        self._hung: set[ThreadUse] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call on an idle or new thread, and return its future. If all threads are busy and
        no more may start, the call waits."""
        future: Future[Any] = Future()
        use = CURRENT_CALL.get()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            self._mark(use, is_running=True)
            try:
                outcome = fn(*args, **kwargs)
            except Exception as error:
                self._mark(use, is_running=False)
                future.set_exception(error)
            except BaseException as error:  # sys.exit() in a tool must not end the event loop
                self._mark(use, is_running=False)
                future.set_exception(RuntimeError(f"{type(error).__name__} was raised: {error}"))
            else:
                self._mark(use, is_running=False)
                future.set_result(outcome)

        self._work.put(work)
        self._wake_or_start()
        return future

    def give_up(self, use: ThreadUse) -> None:
        """Abandon a call. If it is still running, it counts as hung until it returns."""
        with self._guard:
            if use.is_running:
                self._hung.add(use)

    def hung(self) -> list[str]:
        """Return the tool of each abandoned call that is still running, sorted."""
        with self._guard:
            return sorted(use.tool for use in self._hung)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let each thread end after the calls that are already queued. Does not wait."""
        with self._guard:
            for _ in range(self._alive):
                self._work.put(None)
            self._alive = self._idle = 0

    def _mark(self, use: ThreadUse | None, *, is_running: bool) -> None:
        if use is None:
            return
        with self._guard:
            use.is_running = is_running
            if not is_running:
                self._hung.discard(use)

    def _wake_or_start(self) -> None:
        """Reserve an idle thread for the call just queued, or start a thread."""
        with self._guard:
            if self._idle > 0:
                self._idle -= 1
                return
            if self._alive >= self._most:
                return
            self._alive += 1
        threading.Thread(target=self._serve, name="sparring-tool", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._guard:
                self._idle += 1


def run_in_own_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work` to completion in a new event loop, in another thread if this one runs a loop.

    An interrupt (Ctrl-C) cancels the work and waits for its end; in another thread, at most 10 s.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    thread = LoopThread()
    try:
        return thread.run(work)
    finally:
        thread.close()


class LoopThread:
    """One event loop in a thread of its own. A training uses one for all its steps, so that tools
    keep their connections and semaphores, which belong to a loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._serve, name="sparring-player", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._runner:  # on exit, cancels the remaining tasks and closes the loop
            self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` to completion. An interrupt cancels it and waits at most 10 s for its end."""
        ended = threading.Event()
        tasks: list[asyncio.Task[Result]] = []

        def start() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda _: ended.set())

        def cancel() -> None:
            if tasks:
                tasks[0].cancel()
            else:  # the interrupt came before `start` was scheduled
                work.close()
                ended.set()

        try:
            self._loop.call_soon_threadsafe(start)
            ended.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            ended.wait(_CANCEL_SECONDS)
            raise
        return tasks[0].result()

    def close(self) -> None:
        """Stop the loop and wait at most 10 s for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_CANCEL_SECONDS)
