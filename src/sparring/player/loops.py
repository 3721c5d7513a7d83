"""Runs coroutines from synchronous code, even in a thread that already runs an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
_CANCEL_SECONDS = 10.0


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
