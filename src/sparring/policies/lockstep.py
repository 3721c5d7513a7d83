"""Lockstep batches: their composition does not depend on timing.

A lockstep batch is generated as soon as every active rollout has at least one request in it. If
each rollout has exactly one, the requests and their order depend on the rollouts alone, so that a
repeated run gives the same tokens bit for bit, however long the tools take.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sparring.contracts.policies import Sample, SampleRequest
from sparring.contracts.rollouts import RolloutKey

Generate = Callable[[Sequence[SampleRequest]], list[Sample]]


class LockstepBatches:
    """Collects the requests of active rollouts and generates batches in a thread. Not thread-safe:
    use it from one event loop."""

    def __init__(self, generate: Generate) -> None:
        self._generate = generate
        self._active = 0
        self._waiting: dict[asyncio.Future[Sample], SampleRequest] = {}
        self._rollouts: Counter[RolloutKey] = Counter()  # of the waiting requests
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="generation")
        self._running: asyncio.Task[None] | None = None

    @property
    def active(self) -> int:
        """The number of rollouts that batches wait for."""
        return self._active

    def join(self) -> None:
        """Add a rollout; batches wait for its request from now on."""
        self._active += 1

    def leave(self) -> None:
        """Remove a rollout; batches no longer wait for it."""
        self._active -= 1
        self._start_if_complete()

    async def sample(self, request: SampleRequest) -> Sample:
        """Add a request to the next batch and return its sample when the batch is done."""
        future: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._waiting[future] = request
        self._rollouts[request.key.rollout] += 1
        self._start_if_complete()
        try:
            return await future
        finally:
            if self._waiting.pop(future, None) is not None:
                self._forget(request)

    async def idle(self) -> None:
        """Wait until no batch is being generated. A batch goes on if its rollouts are cancelled."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def _forget(self, request: SampleRequest) -> None:
        key = request.key.rollout
        self._rollouts[key] -= 1
        if not self._rollouts[key]:
            del self._rollouts[key]

    def _start_if_complete(self) -> None:
        if self._running is None and self._waiting and len(self._rollouts) >= self._active:
            self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        batch = sorted(self._waiting.items(), key=lambda item: item[1].key.order())
        self._waiting.clear()
        self._rollouts.clear()
        requests = [request for _, request in batch]
        try:
            loop = asyncio.get_running_loop()
            samples = await loop.run_in_executor(self._thread, self._generate, requests)
        except BaseException as error:
            for future, _ in batch:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for (future, _), sample in zip(batch, samples, strict=True):
                if not future.done():
                    future.set_result(sample)
        finally:
            self._running = None
            self._start_if_complete()
