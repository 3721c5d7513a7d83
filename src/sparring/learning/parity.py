"""Checks that sampler and trainer give the same tokens the same log-probabilities.

If they disagree, the update uses the gradient of another policy, although rewards may still rise
for a while. They are compared in the first step, and in every step if servers sample. If they
disagree, the run fails with the likely cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FLOAT32_LIMIT = 1e-3
BFLOAT16_LIMIT = 0.05


@dataclass(frozen=True, slots=True)
class Parity:
    """The gap between the log-probabilities of sampler and trainer, over `tokens` tokens."""

    tokens: int
    largest: float
    mean: float
    dtype: str

    @property
    def limit(self) -> float:
        """The acceptable gap in this precision."""
        return FLOAT32_LIMIT if self.dtype == "float32" else BFLOAT16_LIMIT

    @property
    def holds(self) -> bool:
        """Whether the gap is within the limit: the largest gap in float32, the mean in bfloat16,
        where rounding makes single gaps large."""
        return (self.largest if self.dtype == "float32" else self.mean) <= self.limit

    def __str__(self) -> str:
        kind = "largest" if self.dtype == "float32" else "mean"
        return (
            f"sampler and trainer differ by {self.largest:.1e} at most and {self.mean:.1e} on "
            f"average over {self.tokens} tokens ({self.dtype}; limit {self.limit:g} on the {kind})"
        )


def likely_cause(
    sampled: Sequence[float], trained: Sequence[float], at_temperature_one: Sequence[float]
) -> str:
    """Return the first explanation that fits. Each argument has one log-probability per sampled
    token."""
    gap = _gap(sampled, trained)
    if _gap(sampled, at_temperature_one) < gap / 4:
        return (
            "The sampler's log-probabilities match temperature 1: report those of the "
            "temperature-scaled softmax (vLLM: --logprobs-mode processed_logprobs)."
        )
    if len(sampled) > 8 and min(_gap(sampled[1:], trained), _gap(sampled, trained[1:])) < gap / 4:
        return (
            "The log-probabilities match when shifted by one token: the rollout function returns "
            "them for the wrong positions."
        )
    return (
        "Likely causes: the sampler's weights differ from the trainer's (an inactive adapter, a "
        "server that is not kept in sync), it samples with more than temperature (top_p, top_k, a "
        "penalty), or it computes in another precision."
    )


def _gap(left: Sequence[float], right: Sequence[float]) -> float:
    pairs = list(zip(left, right, strict=False))
    return sum(abs(one - other) for one, other in pairs) / max(1, len(pairs))
