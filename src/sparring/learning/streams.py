"""What an engine learns from: rows, with numbers for each token that the credit rules gave."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from sparring.contracts.training import TrainSettings
from sparring.learning.credit import group_relative, tool_results
from sparring.learning.ranks import Ranks
from sparring.learning.rows import LearningRollout, LearningRow
from sparring.policies.vllm_server import PublishedWeights


@dataclass(frozen=True, slots=True)
class Stream:
    """One row of the batch.

    `advantages` has a number for each token of the completion, and counts where the row's mask is
    1. `targets` is the weight of each token in the loss on tool results; None if no rank has any.
    `rollout` is the index of the row's rollout in the batch.
    """

    row: LearningRow
    rollout: int
    advantages: array[float]
    targets: array[float] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The streams of one generation on this rank: `group` rollouts of each case, one after another.

    `case_ids` are by rollout. `weights` are those that servers sampled with; None without servers.
    """

    streams: tuple[Stream, ...]
    case_ids: tuple[str, ...]
    group: int
    weights: PublishedWeights | None = None

    @property
    def rollout_of_row(self) -> list[int]:
        """The index of each row's rollout."""
        return [each.rollout for each in self.streams]


def advantages_of(
    learned: Sequence[LearningRollout],
    are_live: Sequence[bool],
    settings: TrainSettings,
    ranks: Ranks,
) -> list[float]:
    """Return the advantage of each rollout of this rank.

    It is 0 in a group without a gradient, whose equal rewards may differ from their mean by
    rounding.
    """
    every = group_relative.advantages(
        ranks.gather([each.reward for each in learned]),
        settings.num_generations,
        group_relative.scale_of(settings.engine),
    )
    start = ranks.rank * len(learned)  # every rank has as many rollouts
    mine = every[start : start + len(learned)]
    return [value if live else 0.0 for value, live in zip(mine, are_live, strict=True)]


def streams_of(
    learned: Sequence[LearningRollout],
    advantages: Sequence[float],
    settings: TrainSettings,
    ranks: Ranks,
) -> tuple[Stream, ...]:
    """Return the streams of these rollouts, in which every token has the advantage of its rollout
    and tool results have their weight in the second loss."""
    totals = tool_results.Totals.merged(ranks.gather([tool_results.Totals.of(learned)]))
    streams = []
    for number, (rollout, advantage) in enumerate(zip(learned, advantages, strict=True)):
        weight = tool_results.token_weight(
            settings.world_model_normalization,
            rollout.observed_tokens,
            totals,
            settings.max_completion_length,
        )
        for row in rollout.rows:
            by_token = array("f", [advantage]) * len(row.completion)
            targets = tool_results.spread(row, weight) if totals.tokens else None
            streams.append(Stream(row, number, by_token, targets))
    return tuple(streams)
