"""A thread pool for synchronous user code: tools and measures. A leaf.

The SDK runs synchronous tools in the event loop's default executor, which has six threads on a
machine with two cores. This pool has as many as rollouts need. Its threads are daemons: code
that never returns must not keep the process from ending.
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
    """Records whether a tool call occupies a thread right now."""

    tool: str
    is_running: bool = False


class DaemonThreads(ThreadPoolExecutor):
    """An executor that starts daemon threads on demand and tracks the hung ones."""

    def __init__(self, most: int) -> None:
        super().__init__(max_workers=1)  # its threads are never used: `submit` is overridden
        self._most = most
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._alive = self._idle = 0
        self._hung: set[ThreadUse] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call on an idle or new thread; returns its future."""
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
        """Abandons a call; if its thread still runs, it counts as hung until it returns."""
        with self._guard:
            if use.is_running:
                self._hung.add(use)

    def hung(self) -> list[str]:
        """Return the tools whose abandoned calls still run."""
        with self._guard:
            return sorted(use.tool for use in self._hung)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets idle threads end, without waiting for hung ones."""
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
        """Reserves an idle thread for the work just queued, or starts one."""
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
