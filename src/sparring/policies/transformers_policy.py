"""A policy whose weights are in this process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from sparring.contracts.policies import Sample, SampleRequest
from sparring.cpu import release_freed_memory
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family
from sparring.policies.few_rows import MOST_ROWS, speeds_up
from sparring.policies.generation import generate
from sparring.policies.growing_cache import bytes_per_token
from sparring.policies.lockstep import LockstepBatches
from sparring.policies.pretrained import load_tokenizer, load_weights
from sparring.policies.recognition import recognise
from sparring.policies.turn_cache import TurnCache

_CPU_LIMIT = 5 << 28  # bytes: 1.25 GiB, because the machine may be a laptop


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
        turn_cache: float = 1.0,
    ) -> None:
        """`turn_cache` is the memory in GiB for key/value caches that are kept between the turns of
        a rollout."""
        self.name = name
        self.model = model.eval()
        self.tokenizer = tokenizer
        chosen = family or recognise(tokenizer)
        self.codec = ChatCodec(tokenizer, chosen)
        self._batch_size = batch_size
        self._autocast = autocast
        super().__init__(self._sample_all)
        self._turns = TurnCache(int(turn_cache * 2**30))
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
        turn_cache: float = 1.0,
    ) -> TransformersPolicy:
        """Load a model by its name or folder (see `resolve_model_name`). By default, it runs in
        bfloat16 on CUDA if available, else in float32 on the CPU."""
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        torch_dtype = getattr(
            torch, dtype or ("bfloat16" if device.startswith("cuda") else "float32")
        )
        tokenizer = load_tokenizer(name)
        model = load_weights(name, dtype=torch_dtype)
        return cls(model.to(device), tokenizer, name=name, family=family, turn_cache=turn_cache)

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
