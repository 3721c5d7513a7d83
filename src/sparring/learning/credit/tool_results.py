"""ECHO's weights: a second loss by which the model predicts tool results (arXiv 2605.24517).

Besides the policy's loss on sampled tokens, ECHO has a cross-entropy on the bodies of tool results,
without the tokens that the template adds. Each normalisation is a weight per token, computed over
the rows of all ranks, so that an engine can sum weighted losses however the rows are distributed
over ranks and passes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparring.contracts.training import Normalization, TrainSettings
from sparring.learning.credit.rule import Credit
from sparring.learning.engine import Ranks
from sparring.learning.groups import Group, Outcome
from sparring.learning.rows import LearningRollout, LearningRow


@dataclass(frozen=True, slots=True)
class Totals:
    """The number of tool-result tokens, and of rollouts with at least one such token."""

    tokens: int = 0
    rollouts: int = 0

    @classmethod
    def of(cls, learned: Iterable[LearningRollout]) -> Totals:
        """Return the totals of these rollouts."""
        counts = [each.observed_tokens for each in learned]
        return cls(sum(counts), sum(count > 0 for count in counts))

    @classmethod
    def merged(cls, parts: Iterable[Totals]) -> Totals:
        """Return the sum of all parts."""
        all_parts = list(parts)
        return cls(sum(part.tokens for part in all_parts), sum(part.rollouts for part in all_parts))


class ToolResults:
    """Gives the tokens of tool results their weight. With coefficient 0, their cross-entropy is
    measured, and no group is worth learning from for their sake."""

    def __init__(self, settings: TrainSettings) -> None:
        self._normalization = settings.echo_normalization
        self._longest = settings.max_completion_length
        self._learns = settings.learns_results

    def teaches(self, group: Group) -> bool:
        """Return whether a group without a gradient is learned from: one whose rollouts failed."""
        return self._learns and group.outcome is Outcome.FAILED

    def credit(self, groups: Sequence[Group], ranks: Ranks) -> list[Credit]:
        """Return the weights of tool results; none if no rank has any."""
        learned = [each for group in groups for each in group.learned]
        totals = Totals.merged(ranks.gather([Totals.of(learned)]))
        if not totals.tokens:
            return [Credit() for rollout in learned for _ in rollout.rows]
        weights = (
            token_weight(self._normalization, each.observed_tokens, totals, self._longest)
            for each in learned
        )
        return [
            Credit(targets=spread(row, weight))
            for rollout, weight in zip(learned, weights, strict=True)
            for row in rollout.rows
        ]


def token_weight(
    normalization: Normalization, in_rollout: int, totals: Totals, longest: int
) -> float:
    """Return the weight in the loss of each tool-result token of a rollout.

    `in_rollout` is the number of tool-result tokens in the rollout, `longest` the maximum
    completion length in tokens.
    """
    if not in_rollout:
        return 0.0
    return _WEIGHTS[normalization](in_rollout, totals, longest)


def spread(row: LearningRow, weight: float) -> array[float]:
    """Return one weight per token of the completion: `weight` in tool results, 0 elsewhere."""
    weights = array("f", bytes(4 * len(row.completion)))
    for body in row.bodies:
        weights[body.start : body.stop] = array("f", [weight]) * (body.stop - body.start)
    return weights


_WEIGHTS: Mapping[Normalization, Callable[[int, Totals, int], float]] = {
    # All tokens have the same weight, so a long result has more weight than a short one.
    "selected_tokens": lambda _, totals, __: 1 / totals.tokens,
    # All rollouts have the same weight, however long their tool results are.
    "sequence_mean": lambda in_rollout, totals, _: 1 / (in_rollout * totals.rollouts),
    # As in Dr. GRPO: each rollout is divided by the maximum length, not by its own.
    "seq_mean_token_sum_norm": lambda _, totals, longest: 1 / (longest * totals.rollouts),
}
