"""Credit: which numbers the rules give each token of a row, on every rank."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from sparring.contracts.rollouts import ResultBody
from sparring.contracts.training import TrainSettings
from sparring.learning.credit import RULES, streams_of
from sparring.learning.credit.group_relative import GroupRelative
from sparring.learning.credit.rule import Credit
from sparring.learning.credit.tool_results import ToolResults, Totals
from sparring.learning.engine import Batch, Ranks, Stream
from sparring.learning.groups import Group
from sparring.learning.rows import LearningRollout, LearningRow
from sparring.player import Played
from tests.rollouts import rollout as played_rollout

SETTINGS = TrainSettings(num_generations=2)


class Pair:
    """One of two ranks; `others` is what the other one gathers, call by call."""

    def __init__(self, rank: int, *others: list[Any]) -> None:
        self.rank = rank
        self._others = list(others)

    def gather(self, mine: list[Any]) -> list[Any]:
        other = self._others.pop(0) if self._others else []
        return [*mine, *other] if self.rank == 0 else [*other, *mine]


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


def group(*learned: LearningRollout) -> Group:
    played = [Played(played_rollout("", reward=each.reward), 0.0) for each in learned]
    return Group(tuple(played), learned)


def streams(groups: Sequence[Group], ranks: Ranks, **settings: Any) -> tuple[Stream, ...]:
    with_them = SETTINGS.model_copy(update=settings)
    return streams_of([rule(with_them) for rule in RULES], groups, ranks)


def test_advantages_are_those_of_this_rank_among_the_groups_of_all() -> None:
    mine = [group(rollout(1.0, 3), rollout(0.0, 3))]
    rule = GroupRelative(SETTINGS)
    first, second = (rule.credit(mine, Pair(rank, [0.5, 0.5])) for rank in (0, 1))
    assert first == second
    high, low = (each.advantages[0] for each in first if each.advantages is not None)
    assert high == -low > 0


def test_a_group_without_a_gradient_has_advantages_of_0() -> None:
    made = streams([group(rollout(0.7, 3), rollout(0.7, 3))], Pair(0))
    assert Batch(made, ("a", "a"), 2).advantages == [0.0, 0.0]


def test_every_token_of_every_row_has_the_advantage_of_its_rollout() -> None:
    made = streams([group(rollout(1.0, 2, 3), rollout(0.0, 1))], Pair(0))
    value = made[0].advantages[0]
    assert value > 0
    assert [list(each.advantages) for each in made] == [[value] * 2, [value] * 3, [-value]]
    assert [each.targets for each in made] == [None] * 3
    batch = Batch(made, ("a", "a"), 2)
    assert batch.rollout_of_row == [0, 0, 1]
    assert batch.advantages == [value, -value], "to the last bit"


@pytest.mark.parametrize("here", [True, False])
def test_targets_are_there_on_every_rank_if_any_has_a_tool_result(here: bool) -> None:
    mine = group(rollout(1.0, 4, body=2 if here else 0))
    made = streams([mine], Pair(0, [], [Totals(tokens=2, rollouts=1)]), num_generations=1)
    assert made[0].targets is not None
    wanted = [0.25, 0.25, 0.0, 0.0] if here else [0.0] * 4
    assert list(made[0].targets) == wanted


def test_a_failed_group_is_worth_learning_from_if_tool_results_are() -> None:
    failed = group(rollout(0.0, 3, body=1), rollout(0.0, 3, body=1))
    live = group(rollout(0.0, 3, body=1), rollout(1.0, 3, body=1))
    with_results = SETTINGS.model_copy(update={"echo_coefficient": 0.1})
    assert (GroupRelative(SETTINGS).teaches(failed), GroupRelative(SETTINGS).teaches(live)) == (
        False, True,
    )  # fmt: skip
    assert not ToolResults(SETTINGS).teaches(failed)
    assert ToolResults(with_results).teaches(failed)


class EveryOther:
    """A rule that is not one number per rollout: it adds 1 to every other token."""

    def teaches(self, group: Group) -> bool:
        return True

    def credit(self, groups: Sequence[Group], ranks: Ranks) -> list[Credit]:
        rows = [row for group in groups for each in group.learned for row in each.rows]
        ones = [[float(n % 2) for n in range(len(row.completion))] for row in rows]
        return [Credit(advantages=array("f", each)) for each in ones]


def test_the_advantages_of_several_rules_add_up() -> None:
    mine = [group(rollout(1.0, 3), rollout(0.0, 3))]
    rules = [GroupRelative(SETTINGS), EveryOther()]
    alone = streams_of(rules[:1], mine, Pair(0))[0].advantages[0]
    first, second = streams_of(rules, mine, Pair(0))
    assert list(first.advantages) == pytest.approx([alone, alone + 1, alone])
    assert list(second.advantages) == pytest.approx([-alone, 1 - alone, -alone])
    assert streams_of([EveryOther()], mine, Pair(0))[0].advantages.tolist() == [0.0, 1.0, 0.0]
    assert streams_of([ToolResults(SETTINGS)], mine, Pair(0))[0].advantages.tolist() == [0.0] * 3
