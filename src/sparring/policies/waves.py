"""Batches whose composition does not depend on timing.

A wave is generated when every rollout that is alive waits for it. Which requests are in
it, and in which order, then follows from the rollouts alone, so that a repeated run gives
the same tokens bit by bit, however long the tools took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sparring.contracts.policies import Sample, SampleRequest

Generate = Callable[[Sequence[SampleRequest]], list[Sample]]


class Waves:
    """Gathers the requests of the rollouts that are alive. Used from one event loop."""

    def __init__(self, generate: Generate) -> None:
        self._generate = generate
        self._alive = 0
        self._waiting: dict[asyncio.Future[Sample], SampleRequest] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="generation")
        self._running: asyncio.Task[None] | None = None

    def join(self) -> None:
        self._alive += 1

    def leave(self) -> None:
        self._alive -= 1
        self._start_when_complete()

    async def sample(self, request: SampleRequest) -> Sample:
        future: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._waiting[future] = request
        self._start_when_complete()
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    def _start_when_complete(self) -> None:
        if self._running is None and self._waiting and len(self._waiting) >= self._alive:
            self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        wave = sorted(self._waiting.items(), key=lambda item: item[1].key.order())
        self._waiting.clear()
        requests = [request for _, request in wave]
        try:
            loop = asyncio.get_running_loop()
            samples = await loop.run_in_executor(self._thread, self._generate, requests)
        except BaseException as error:
            for future, _ in wave:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for (future, _), sample in zip(wave, samples, strict=True):
                if not future.done():
                    future.set_result(sample)
        finally:
            self._running = None
            self._start_when_complete()
