"""Streams: which numbers each token of a row gets, on every rank."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from sparring.contracts.rollouts import ResultBody
from sparring.contracts.training import TrainSettings
from sparring.learning.rows import LearningRollout, LearningRow
from sparring.learning.streams import Batch, advantages_of, streams_of

SETTINGS = TrainSettings(num_generations=2)


class Pair:
    """One of two ranks; `other` is what the other one gathers."""

    def __init__(self, rank: int, other: list[Any]) -> None:
        self.rank = rank
        self._other = other

    def gather(self, mine: list[Any]) -> list[Any]:
        return [*mine, *self._other] if self.rank == 0 else [*self._other, *mine]


def rollout(reward: float | None, *lengths: int, body: int = 0) -> LearningRollout:
    """A rollout with a row of each length, whose first `body` tokens are a tool result."""
    bodies = (ResultBody("find", 0, body),) if body else ()
    rows = tuple(
        LearningRow(
            array("i", [1]), array("i", [2] * length), b"\x01" * length, array("f", [0.0] * length),
            bodies,
        )
        for length in lengths
    )  # fmt: skip
    return LearningRollout(rows, reward)


def test_advantages_are_those_of_this_rank_among_the_groups_of_all() -> None:
    learned = [rollout(1.0, 3), rollout(0.0, 3)]
    first = advantages_of(learned, [True] * 2, SETTINGS, Pair(0, [0.5, 0.5]))
    second = advantages_of(learned, [True] * 2, SETTINGS, Pair(1, [0.5, 0.5]))
    assert first == second
    assert first[0] == -first[1] > 0


def test_a_group_without_a_gradient_has_advantages_of_0() -> None:
    learned = [rollout(0.7, 3), rollout(0.7, 3)]
    assert advantages_of(learned, [False] * 2, SETTINGS, Pair(0, [])) == [0.0, 0.0]


def test_every_token_of_every_row_has_the_advantage_of_its_rollout() -> None:
    streams = streams_of([rollout(1.0, 2, 3), rollout(0.0, 1)], [0.5, -0.5], SETTINGS, Pair(0, []))
    assert [list(each.advantages) for each in streams] == [[0.5] * 2, [0.5] * 3, [-0.5]]
    assert [each.targets for each in streams] == [None] * 3
    assert Batch(streams, ("a", "a"), 2).rollout_of_row == [0, 0, 1]


@pytest.mark.parametrize("here", [True, False])
def test_targets_are_there_on_every_rank_if_any_has_a_tool_result(here: bool) -> None:
    from sparring.learning.credit.tool_results import Totals

    learned = [rollout(1.0, 4, body=2 if here else 0)]
    (stream,) = streams_of(learned, [0.5], SETTINGS, Pair(0, [Totals(tokens=2, rollouts=1)]))
    assert stream.targets is not None
    wanted = [0.25, 0.25, 0.0, 0.0] if here else [0.0] * 4
    assert list(stream.targets) == wanted
