"""Whether sampler and trainer give the same tokens the same log-probabilities.

They are two computations of one number. Where they disagree, the policy gradient is that of
another policy, and rewards still look fine for a while; so it is checked before the first
step, and a run that disagrees is refused with the likely cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparring.contracts.errors import ParityError

FLOAT32_LIMIT = 1e-3
BFLOAT16_LIMIT = 0.05


@dataclass(frozen=True, slots=True)
class Parity:
    """How far apart they were, over so many tokens."""

    tokens: int
    largest: float
    mean: float
    dtype: str

    @property
    def limit(self) -> float:
        return FLOAT32_LIMIT if self.dtype == "float32" else BFLOAT16_LIMIT

    @property
    def holds(self) -> bool:
        """By the largest gap in float32; in bfloat16, whose rounding is coarse, by the mean."""
        return (self.largest if self.dtype == "float32" else self.mean) <= self.limit

    def __str__(self) -> str:
        kind = "largest" if self.dtype == "float32" else "mean"
        return (
            f"sampler and trainer differ by {self.largest:.1e} at most and {self.mean:.1e} on "
            f"average over {self.tokens} tokens ({self.dtype}; limit {self.limit:g} on the {kind})"
        )


def refuse_disagreement(parity: Parity, cause: str) -> None:
    if not parity.holds:
        raise ParityError(f"{parity}. {cause}")


def likely_cause(
    sampled: Sequence[float], trained: Sequence[float], at_temperature_one: Sequence[float]
) -> str:
    """The first explanation that fits: `trained` and the others are per sampled token."""
    gap = _gap(sampled, trained)
    if _gap(sampled, at_temperature_one) < gap / 4:
        return (
            "The sampler's log-probabilities fit temperature 1: report those of the "
            "temperature-scaled softmax (vLLM: --logprobs-mode processed_logprobs)."
        )
    if len(sampled) > 8 and min(_gap(sampled[1:], trained), _gap(sampled, trained[1:])) < gap / 4:
        return (
            "They fit when shifted by one token: the rollout function gives log-probabilities for "
            "the wrong positions."
        )
    return (
        "Likely causes: the sampler has other weights than the trainer (an adapter that is not "
        "active, a server that is not kept in sync), samples by more than temperature (top_p, "
        "top_k, a penalty), or computes in another precision."
    )


def _gap(left: Sequence[float], right: Sequence[float]) -> float:
    pairs = list(zip(left, right, strict=False))
    return sum(abs(one - other) for one, other in pairs) / max(1, len(pairs))
