"""How rollouts become gradients, one module per rule. No rule knows an engine.

A rule sees the groups of a step, with their rows, rewards and verdicts, and gives each token a
number (`rule.py`). What several rules give a token adds up. A new rule is a module here and an
entry in `RULES`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

from sparring.contracts.training import TrainSettings
from sparring.learning.credit.group_relative import GroupRelative
from sparring.learning.credit.rule import Rule
from sparring.learning.credit.tool_results import ToolResults
from sparring.learning.engine import Ranks, Stream
from sparring.learning.groups import Group

RULES: Sequence[Callable[[TrainSettings], Rule]] = (GroupRelative, ToolResults)


def streams_of(rules: Sequence[Rule], groups: Sequence[Group], ranks: Ranks) -> tuple[Stream, ...]:
    """Return the streams of these groups, one per row, with what all rules give their tokens."""
    learned = [each for group in groups for each in group.learned]
    rows = [(number, row) for number, rollout in enumerate(learned) for row in rollout.rows]
    credits = zip(*(rule.credit(groups, ranks) for rule in rules), strict=True)
    return tuple(
        Stream(
            row,
            number,
            _added(each.advantages for each in given) or array("f", bytes(4 * len(row.completion))),
            _added(each.targets for each in given),
        )
        for (number, row), given in zip(rows, credits, strict=True)
    )


def _added(numbers: Iterable[array[float] | None]) -> array[float] | None:
    """Return the sums by token; None if nothing is given."""
    given = [each for each in numbers if each is not None]
    if len(given) <= 1:
        return given[0] if given else None
    return array("f", map(sum, zip(*given, strict=True)))
