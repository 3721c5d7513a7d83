"""A policy whose weights are in this process. It samples in lockstep batches.

A lockstep batch is generated as soon as every active rollout has at least one request in it. If
each rollout has exactly one, the requests and their order depend on the rollouts alone, so that a
repeated run gives the same tokens bit for bit, however long the tools take.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from sparring.contracts.policies import Sample, SampleRequest
from sparring.contracts.rollouts import RolloutKey
from sparring.machine import release_freed_memory
from sparring.policies.caches import TurnCache, bytes_per_token
from sparring.policies.codec import ChatCodec
from sparring.policies.cpu_forward import MOST_ROWS, speeds_up
from sparring.policies.families import Family, recognise
from sparring.policies.generation import generate
from sparring.policies.pretrained import load_tokenizer, load_weights

_CPU_LIMIT = 5 << 28  # bytes: 1.25 GiB, because the machine may be a laptop
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


class TransformersPolicy(LockstepBatches):
    """Samples with a transformers model, in lockstep batches."""

    samples_in_lockstep = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "in-process",
        family: Family | None = None,
        batch_size: int = 128,
        autocast: torch.dtype | None = None,
        kv_cache_memory: float = 1.0,
    ) -> None:
        """`kv_cache_memory` is the memory in GiB for key/value caches that are kept between the
        turns of a rollout."""
        self.name = name
        self.model = model.eval()
        self.tokenizer = tokenizer
        chosen = family or recognise(tokenizer)
        self.codec = ChatCodec(tokenizer, chosen)
        self._batch_size = batch_size
        self._autocast = autocast
        super().__init__(self._sample_all)
        self._turns = TurnCache(int(kv_cache_memory * 2**30))
        self._turns_version: int | None = None
        self.tokens_drawn = 0
        self.version: int | None = None  # set by the trainer that updates the weights

    @classmethod
    def load(
        cls,
        name: str,
        *,
        family: Family | None = None,
        dtype: str | None = None,
        device: str | None = None,
        kv_cache_memory: float = 1.0,
    ) -> TransformersPolicy:
        """Load a model by its name or folder (see `resolve_model_name`). By default, it runs in
        bfloat16 on CUDA if available, else in float32 on the CPU."""
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        torch_dtype = getattr(
            torch, dtype or ("bfloat16" if device.startswith("cuda") else "float32")
        )
        tokenizer = load_tokenizer(name)
        model = load_weights(name, dtype=torch_dtype)
        return cls(
            model.to(device), tokenizer, name=name, family=family, kv_cache_memory=kv_cache_memory
        )

    def join(self) -> None:
        """Add a rollout; batches wait for its request from now on."""
        if not self.active:
            release_freed_memory()  # freed by the last update
        super().join()

    def leave(self) -> None:
        """Remove a rollout; batches no longer wait for it."""
        super().leave()
        if not self.active:
            self._turns.clear()
            release_freed_memory()  # for the next update

    def _count_tokens(self, drawn: int) -> None:
        """Add to `tokens_drawn`, which shows progress inside a lockstep batch: a batch may take
        minutes."""
        self.tokens_drawn += drawn

    def _sample_all(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        samples: list[Sample] = []
        if self._turns_version != self.version:  # the stored keys and values are from other weights
            self._turns.clear()
            self._turns_version = self.version
        size = self._rows_at_once(requests)
        with self._precision():
            for start in range(0, len(requests), size):
                batch = requests[start : start + size]
                samples += generate(
                    self.model, batch, self.codec.stop_ids, self._count_tokens, self._turns
                )
        self._turns.keep_only({request.key.rollout for request in requests})
        if self.version is None:
            return samples
        return [replace(sample, version=self.version) for sample in samples]

    def _rows_at_once(self, requests: Sequence[SampleRequest]) -> int:
        """Return the number of requests to sample together, for batches of about equal size. On a
        CPU, the key/value caches of a batch fit into `_CPU_LIMIT`, unless one request alone exceeds
        it. Where `few_rows` makes batches faster, they are small enough for it."""
        most = self._batch_size
        if self.model.device.type == "cpu":
            longest = max(len(each.prompt) + each.sampling.max_tokens for each in requests)
            most = min(most, max(1, _CPU_LIMIT // (longest * bytes_per_token(self.model))))
        if self._autocast is None and speeds_up(self.model):
            most = min(most, MOST_ROWS)
        return math.ceil(len(requests) / math.ceil(len(requests) / most))

    def _precision(self) -> AbstractContextManager[Any]:
        """Return a context manager for the precision of the trainer, which may compute in bfloat16
        with float32 weights."""
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self.model.device.type, dtype=self._autocast)
