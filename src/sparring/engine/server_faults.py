"""Names the fault of a sampling server whose log-probabilities differ from the trainer's.

A server answers with status 200 in each of these cases. The wrong turn is sampled again, alone,
first as before and then without any prefix cache. Which of the two agrees with the trainer tells
what went wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import Sample, SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.engine.parity_gate import Score, Suspect
from sparring.learning.parity import FLOAT32_LIMIT

_TOKENS = 24

SampleAgain = Callable[[SampleRequest, str], Sample]

STALE_PREFIX = (
    "The server keeps a prefix cache of other weights: it agrees once the cache is not used. "
    "Weights were loaded in place, under a name that it knew; restart the server, and load every "
    "version under a name of its own."
)
MIXED_ROWS = (
    "The server mixes weights of different models in one batch: the same turn, sampled alone, "
    "agrees. Serve only adapters of this run, and nothing of the base model beside them (vLLM on "
    "CPU gives rows of the base the delta of an adapter)."
)
NO_ADAPTER = (
    "The server samples with the base weights, without the adapter. Start it with --enable-lora, "
    "and with the model that is trained."
)
STALE_HEAD = (
    "The server kept a part of its old weights when it reloaded whole weights from disk. The "
    "model's lm_head is tied to its embeddings, and vLLM on CPU leaves a tied lm_head as it was. "
    "Train an adapter (lora = true), or a model whose embeddings are not tied."
)
OTHER_WEIGHTS = (
    "The server samples with other weights than the ones that were published: another base model, "
    "another adapter, or another precision. Compare its --model and --dtype with the run's."
)


@dataclass(frozen=True, slots=True)
class ServerFaults:
    """Finds the fault by sampling again. `is_tied` tells whether whole weights with a tied
    `lm_head` are published."""

    sample_again: SampleAgain
    case_of_row: Callable[[int], str]
    temperature: float
    is_adapter: bool
    is_tied: bool

    def __call__(self, suspect: Suspect, score: Score) -> str:
        """Return the fault; empty where the server did not answer again."""
        alone = self._gap(suspect, score, salt="")
        fresh = self._gap(suspect, score, salt=f"parity-{suspect.row}-{suspect.gap}")
        bare = self._gap(suspect, score, salt="", without_adapter=True)
        if None in (alone, fresh, bare):
            return ""
        if alone <= FLOAT32_LIMIT:  # type: ignore[operator]
            return MIXED_ROWS
        if fresh <= FLOAT32_LIMIT:  # type: ignore[operator]
            return STALE_PREFIX
        if self.is_adapter and bare <= FLOAT32_LIMIT:  # type: ignore[operator]
            return NO_ADAPTER
        return STALE_HEAD if self.is_tied else OTHER_WEIGHTS

    def _gap(
        self, suspect: Suspect, score: Score, *, salt: str, without_adapter: bool = False
    ) -> float | None:
        """Return the largest gap of another sample of this turn.

        Scores whatever happens: where weights are sharded, all ranks score together.
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
        return max(abs(one - other) for one, other in zip(logprobs, trained, strict=True))

    def _request(self, suspect: Suspect) -> SampleRequest:
        key = SampleKey(RolloutKey(0, 0, self.case_of_row(suspect.row), 0), 0)
        sampling = Sampling(temperature=self.temperature, max_tokens=_TOKENS)
        return SampleRequest(key, array("i", suspect.prompt), sampling)
