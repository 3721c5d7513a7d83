"""Samples through TRL's vLLM, which TRL keeps in sync with the weights.

TRL's generation is collective: all ranks must call it equally often, with the same number of
prompts, or they deadlock or get the completions of other ranks. The number and size of lockstep
batches differ between ranks. So before each call, the ranks exchange their batch sizes and pad
their batches to the largest with prompts of one token. A rank that has finished playing sends only
padding until all ranks have finished.

This module is tested only against a stub of TRL's generation, and never on a GPU.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import Finish, Sample, SampleRequest
from sparring.policies.codec import ChatCodec
from sparring.policies.lockstep import LockstepBatches

LargestOfRanks = Callable[[int], int]


class Generation(Protocol):
    """The part of TRL's `VLLMGeneration` that the sampler uses."""

    def generate(self, prompts: list[list[int]], images: Any, num_generations: int) -> Any:
        """Return prompt ids, completion ids, log-probabilities and extra fields."""
        ...


class VllmSampler:
    """A policy that samples through `trainer.vllm_generation`.

    `largest_of_ranks` returns the maximum of its argument over all ranks.
    """

    samples_in_lockstep = True

    def __init__(
        self,
        generation: Generation,
        codec: ChatCodec,
        largest_of_ranks: LargestOfRanks,
        name: str = "vllm",
    ) -> None:
        self.name = name
        self.codec = codec
        self._generation = generation
        self._largest_of_ranks = largest_of_ranks
        self._batches = LockstepBatches(self._generate)
        self.version: int | None = None  # set by the trainer that updates the weights

    async def idle(self) -> None:
        """Wait until no batch is being sampled."""
        await self._batches.idle()

    def join(self) -> None:
        """Add a rollout; batches wait for its request from now on."""
        self._batches.join()

    def leave(self) -> None:
        """Remove a rollout; batches no longer wait for it."""
        self._batches.leave()

    async def sample(self, request: SampleRequest) -> Sample:
        """Wait for the lockstep batch with this request, and return the sample of the request."""
        return await self._batches.sample(request)

    def finish_round(self) -> None:
        """Call the collective generation with padding until no rank is playing."""
        while size := self._largest_of_ranks(0):
            self._generation.generate(self._padded([], size), None, 1)

    def _generate(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        prompts = [request.prompt.tolist() for request in requests]
        prompts = self._padded(prompts, self._largest_of_ranks(len(prompts)))
        _, completions, logprobs, _ = self._generation.generate(prompts, None, 1)
        return [
            self._sample(request, ids, [token[0] for token in tokens])
            for request, ids, tokens in zip(requests, completions, logprobs, strict=False)
        ]

    def _padded(self, prompts: list[list[int]], size: int) -> list[list[int]]:
        return prompts + [[self.codec.end_of_turn]] * (size - len(prompts))

    def _sample(
        self, request: SampleRequest, ids: Sequence[int], logprobs: Sequence[float | None]
    ) -> Sample:
        limit = request.sampling.max_tokens
        tokens = array("i", list(ids)[:limit])
        if any(value is None for value in logprobs[:limit]):
            raise InfrastructureError("vLLM returned no log-probability for a sampled token")
        has_ended = bool(tokens) and tokens[-1] in self.codec.stop_ids
        values = [float(value) for value in logprobs[:limit] if value is not None]
        finish = Finish.STOP if has_ended else Finish.LENGTH
        return Sample(tokens, array("f", values), finish, self.version)
