"""A policy with its weights in this process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from sparring.contracts.policies import Sample, SampleRequest
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family, recognise
from sparring.policies.generation import generate
from sparring.policies.pretrained import load_tokenizer, load_weights
from sparring.policies.waves import Waves


class TransformersPolicy:
    """Samples with a model of transformers: all waiting requests in one batch, in waves."""

    plays_in_waves = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "in-process",
        family: Family | None = None,
        batch_size: int = 128,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.name = name
        self.model = model.eval()
        self.tokenizer = tokenizer
        chosen = family or recognise(model.config.model_type, tokenizer)
        self.codec = ChatCodec(tokenizer, chosen)
        self._batch_size = batch_size
        self._autocast = autocast
        self._waves = Waves(self._generate)
        self.tokens_drawn = 0

    @classmethod
    def load(
        cls,
        name: str,
        *,
        family: Family | None = None,
        dtype: str | None = None,
        device: str | None = None,
    ) -> TransformersPolicy:
        """Weights by name (see `resolve_model_name`) or from a folder."""
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        kind = getattr(torch, dtype or ("bfloat16" if device.startswith("cuda") else "float32"))
        tokenizer = load_tokenizer(name)
        model = load_weights(name, dtype=kind)
        return cls(model.to(device), tokenizer, name=name, family=family)

    def join(self) -> None:
        self._waves.join()

    def leave(self) -> None:
        self._waves.leave()

    async def sample(self, request: SampleRequest) -> Sample:
        return await self._waves.sample(request)

    def _count_tokens(self, drawn: int) -> None:
        """Progress inside of a wave, which may take minutes."""
        self.tokens_drawn += drawn

    def _generate(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        samples: list[Sample] = []
        with self._precision():
            for start in range(0, len(requests), self._batch_size):
                batch = requests[start : start + self._batch_size]
                samples += generate(self.model, batch, self.codec.stop_ids, self._count_tokens)
        return samples

    def _precision(self) -> AbstractContextManager[Any]:
        """As the trainer computes, where weights in float32 are used in bfloat16."""
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self.model.device.type, dtype=self._autocast)
