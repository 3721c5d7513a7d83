"""Sampling through TRL's vLLM, which TRL keeps in sync with the weights.

TRL's generation is collective: all ranks have to call it equally often, with equally many
prompts, or they wait for one another for ever, or get one another's words. Ranks have waves of
different number and size, so before each call they agree on the largest; the others fill up
with prompts of one token, until nobody has anything left to sample.

Never run on a GPU by us: tested against a stand-in for TRL's generation.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sparring.contracts.errors import MachineryFailure
from sparring.contracts.policies import Finish, Sample, SampleRequest
from sparring.policies.codec import ChatCodec
from sparring.policies.waves import Waves

Exchange = Callable[[int], int]


class Generation(Protocol):
    """What is used of TRL's `VLLMGeneration`."""

    def generate(self, prompts: list[list[int]], images: Any, num_generations: int) -> Any: ...


class VllmSampler:
    """A policy over `trainer.vllm_generation`. `exchange` gives the largest of all ranks'
    numbers."""

    plays_in_waves = True

    def __init__(
        self, generation: Generation, codec: ChatCodec, exchange: Exchange, name: str = "vllm"
    ) -> None:
        self.name = name
        self.codec = codec
        self._generation = generation
        self._exchange = exchange
        self._waves = Waves(self._generate)

    def join(self) -> None:
        self._waves.join()

    def leave(self) -> None:
        self._waves.leave()

    async def sample(self, request: SampleRequest) -> Sample:
        return await self._waves.sample(request)

    def finish_round(self) -> None:
        """Take part in the calls of ranks that are still playing."""
        while most := self._exchange(0):
            self._generation.generate(self._filled([], most), None, 1)

    def _generate(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        prompts = [request.prompt.tolist() for request in requests]
        prompts = self._filled(prompts, self._exchange(len(prompts)))
        _, completions, logprobs, _ = self._generation.generate(prompts, None, 1)
        return [
            self._sample(request, ids, [token[0] for token in each])
            for request, ids, each in zip(requests, completions, logprobs, strict=False)
        ]

    def _filled(self, prompts: list[list[int]], most: int) -> list[list[int]]:
        return prompts + [[self.codec.end_of_turn]] * (most - len(prompts))

    def _sample(
        self, request: SampleRequest, ids: Sequence[int], logprobs: Sequence[float | None]
    ) -> Sample:
        most = request.sampling.max_tokens
        kept = array("i", list(ids)[:most])
        if any(value is None for value in logprobs[:most]):
            raise MachineryFailure("vLLM gave no log-probability for a token that it sampled")
        ended = bool(kept) and kept[-1] in self.codec.stop_ids
        given = [float(value) for value in logprobs[:most] if value is not None]
        return Sample(kept, array("f", given), Finish.STOP if ended else Finish.LENGTH)
