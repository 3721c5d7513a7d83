"""Finds out why the log-probabilities of a sampling server differ from the trainer's.

A server with any of these faults still answers with status 200. So the turn is sampled again, alone
in its batch, with and without the prefix cache, and compared with the trainer, with and without the
adapter.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import Sample, SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.engine.parity_gate import Score, Suspect
from sparring.learning.parity import Parity

_TOKENS = 24

SampleAgain = Callable[[SampleRequest, str], Sample]

STALE_PREFIX = (
    "The server uses a prefix cache of other weights: without the cache, it agrees with the "
    "trainer. Weights were loaded under a name that the server already knew; restart the server, "
    "and load every version under a new name."
)
MIXED_ROWS = (
    "The server mixes weights of different models in one batch: sampled alone, the same turn "
    "agrees with the trainer. Send the server only requests for adapters of this run, and none for "
    "the base model (vLLM on CPU applies an adapter to rows of the base model)."
)
NO_ADAPTER = (
    "The server samples with the base weights, without the adapter. Start it with --enable-lora, "
    "and with the model that is trained."
)
STALE_HEAD = (
    "The server kept some of its old weights when it reloaded whole weights from disk. The "
    "model's lm_head is tied to its embeddings, and vLLM on CPU does not reload a tied lm_head. "
    "Train an adapter (lora = true), or a model whose embeddings are not tied."
)
OTHER_WEIGHTS = (
    "The server does not sample with the published weights: it has another base model, another "
    "adapter, or another precision. Compare its --model and --dtype with those of the run."
)


@dataclass(frozen=True, slots=True)
class ServerFaults:
    """Finds the fault by sampling again. `is_tied` is true if whole weights are published and their
    `lm_head` is tied to the embeddings."""

    sample_again: SampleAgain
    case_of_row: Callable[[int], str]
    temperature: float
    is_adapter: bool
    is_tied: bool

    def __call__(self, suspect: Suspect, score: Score) -> str:
        """Return the description of the fault; empty if sampling again fails."""
        alone = self._parity(suspect, score, salt="")
        fresh = self._parity(suspect, score, salt=f"parity-{suspect.row}-{suspect.gap}")
        bare = self._parity(suspect, score, salt="", without_adapter=True)
        if alone is None or fresh is None or bare is None:
            return ""
        if alone.holds:
            return MIXED_ROWS
        if fresh.holds:
            return STALE_PREFIX
        if self.is_adapter and bare.holds:
            return NO_ADAPTER
        return STALE_HEAD if self.is_tied else OTHER_WEIGHTS

    def _parity(
        self, suspect: Suspect, score: Score, *, salt: str, without_adapter: bool = False
    ) -> Parity | None:
        """Sample the turn again, and compare it with the trainer; None if sampling fails.

        Always calls `score`, because all ranks must score together if weights are sharded.
        """
        ids, logprobs, is_sampled = [suspect.prompt[-1]], [0.0], False
        try:
            sample = self.sample_again(self._request(suspect), salt)
            ids, logprobs, is_sampled = list(sample.ids), list(sample.logprobs), True
        except InfrastructureError:
            pass
        trained = score(suspect.prompt, ids, without_adapter)
        if not is_sampled:
            return None
        gaps = [abs(one - other) for one, other in zip(logprobs, trained, strict=True)]
        return Parity(len(gaps), max(gaps), sum(gaps) / len(gaps), suspect.dtype)

    def _request(self, suspect: Suspect) -> SampleRequest:
        key = SampleKey(RolloutKey(0, 0, self.case_of_row(suspect.row), 0), 0)
        sampling = Sampling(temperature=self.temperature, max_tokens=_TOKENS)
        return SampleRequest(key, array("i", suspect.prompt), sampling)
