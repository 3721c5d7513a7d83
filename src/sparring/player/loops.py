"""Running the player from anywhere: a script, a worker, a notebook whose loop already runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
_CANCEL_SECONDS = 10.0


def run_in_own_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end in a loop of its own; in a thread, where this one's loop is taken.

    Ctrl-C reaches the waiting thread only, so the work is cancelled and waited for: nothing
    of it may go on behind the caller's back.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    thread = _LoopThread(work)
    thread.start()
    try:
        thread.done.wait()
    except BaseException:
        thread.cancel()
        thread.done.wait()
        raise
    return thread.result()


class LoopThread:
    """One event loop that lives as long as a training: tools keep their connections, limits
    their places, and nobody minds whether the caller's thread has a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="sparring-player", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run to the end. Ctrl-C cancels the work and waits for it to be over."""
        over = threading.Event()

        async def until_over() -> Result:
            try:
                return await work
            finally:
                over.set()

        future = asyncio.run_coroutine_threadsafe(until_over(), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:  # as it would be called in this thread
            raise asyncio.CancelledError from None
        except BaseException:
            if not over.is_set():
                future.cancel()
                over.wait(_CANCEL_SECONDS)
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_CANCEL_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


class _LoopThread(threading.Thread, Generic[Result]):
    def __init__(self, work: Coroutine[Any, Any, Result]) -> None:
        super().__init__(name="sparring-player")
        self._work = work
        self.done = threading.Event()  # an interrupted join() takes its thread for ended
        self._outcome: list[Result] = []
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Result] | None = None

    def run(self) -> None:
        try:
            self._outcome.append(asyncio.run(self._run_task()))
        except BaseException as error:
            self._failure = error
        finally:
            self.done.set()

    def cancel(self) -> None:
        if self._loop is not None and self._task is not None and not self.done.is_set():
            self._loop.call_soon_threadsafe(self._task.cancel)

    def result(self) -> Result:
        if self._failure is not None:
            raise self._failure
        return self._outcome[0]

    async def _run_task(self) -> Result:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._work)
        return await self._task
