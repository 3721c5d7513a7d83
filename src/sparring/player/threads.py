"""The threads on which plain (not async) tools run.

The SDK hands plain tools to the event loop's default executor, which has six threads on a
machine with two cores. This one has as many as rollouts need. Its threads are daemons: a
tool that never returns must not keep the process from ending.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

CURRENT_CALL: ContextVar[ThreadUse | None] = ContextVar("sparring_current_call", default=None)


@dataclass(slots=True, eq=False)
class ThreadUse:
    """Whether a tool call occupies a thread right now."""

    tool: str
    is_running: bool = False


class ToolThreads(ThreadPoolExecutor):
    """Daemon threads on demand, and a count of those whose call was given up."""

    def __init__(self, most: int) -> None:
        super().__init__(max_workers=1)  # never used: `submit` is ours
        self._most = most
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._started = self._idle = 0
        self._hung: set[ThreadUse] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        use = CURRENT_CALL.get()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            if use is not None:
                use.is_running = True
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)
            finally:
                if use is not None:
                    use.is_running = False
                    self._hung.discard(use)

        self._work.put(work)
        self._start_one_if_needed()
        return future

    def give_up(self, use: ThreadUse) -> None:
        """A call ran out of time; if its thread still runs, count it until it returns."""
        if use.is_running:
            self._hung.add(use)

    def hung(self) -> list[str]:
        """The tools whose threads outlived their deadline and still run."""
        return sorted(use.tool for use in self._hung.copy())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let idle threads end. Hung ones are daemons and are not waited for."""
        with self._guard:
            for _ in range(self._started):
                self._work.put(None)
            self._started = 0

    def _start_one_if_needed(self) -> None:
        with self._guard:
            if self._idle >= self._work.qsize() or self._started >= self._most:
                return
            self._started += 1
        threading.Thread(target=self._serve, name="sparring-tool", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._guard:
                self._idle += 1
            work = self._work.get()
            with self._guard:
                self._idle -= 1
            if work is None:
                return
            work()
