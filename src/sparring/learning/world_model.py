"""ECHO: learning to predict what tools answer (arXiv 2605.24517), as far as it needs no engine.

Beside the policy's loss on sampled tokens, a cross-entropy on the bodies of tool results,
template scaffolding left out. Each normalisation is a weight per token, worked out over the
rows of all ranks: an engine then sums weighted losses, however the rows are laid out over
ranks and passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sparring.contracts.training import Normalization
from sparring.learning.rows import LearningRow


@dataclass(frozen=True, slots=True)
class Totals:
    """How much of it there is: tokens of tool results, and rows that have any."""

    tokens: int = 0
    rows: int = 0

    @classmethod
    def of(cls, rows: Iterable[LearningRow]) -> Totals:
        counts = [row.observed_tokens for row in rows]
        return cls(sum(counts), sum(count > 0 for count in counts))

    @classmethod
    def merged(cls, parts: Iterable[Totals]) -> Totals:
        each = list(parts)
        return cls(sum(part.tokens for part in each), sum(part.rows for part in each))


def weight_of_a_token(
    normalization: Normalization, in_row: int, totals: Totals, longest: int
) -> float:
    """What each of the `in_row` observed tokens of a row counts in the loss."""
    if not in_row:
        return 0.0
    return _WEIGHTS[normalization](in_row, totals, longest)


_WEIGHTS: Mapping[Normalization, Callable[[int, Totals, int], float]] = {
    # Every token counts the same: a long result counts more than a short one.
    "selected_tokens": lambda _, totals, __: 1 / totals.tokens,
    # Every rollout counts the same, however much its tools said.
    "sequence_mean": lambda in_row, totals, _: 1 / (in_row * totals.rows),
    # As in Dr. GRPO: sums over a length that is the same in every step.
    "seq_mean_token_sum_norm": lambda _, totals, longest: 1 / (longest * totals.rows),
}
