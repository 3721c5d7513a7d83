"""Operation that pairs rollouts by case: of a proof's two models, or of two runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from pydantic import Field

from sparring.contracts.errors import InvalidInput
from sparring.contracts.foreign import ForeignText, MixedText
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.rollouts import failure_reason, readable_run, shown_input
from sparring.operations.run_views import RunQuery
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import NULL_PLAYERS
from sparring.run_folder.records import RolloutRecord
from sparring.run_folder.sharded_log import ShardedLog

_MAX_ROLLOUTS = 20_000  # of each side
_SHOWN = 200
_SAME = 1e-9

Change = Literal["fixed", "improved", "worsened", "broken", "both wrong", "both right"]


class PairRollouts(RunQuery):
    """The two sides to pair."""

    other: str = Field(
        default="",
        description="the run to compare with `run`; empty for a proof, which has both sides",
    )


class Pair(Frozen):
    """One case on both sides."""

    case: MixedText
    question: ForeignText = ""
    change: Change = Field(
        description="fixed: the mean reward rose to 1; improved: it rose to less; broken: it fell "
        "from 1; worsened: it fell from less; both right: it stays 1; both wrong: it stays lower"
    )
    before: float = Field(description="mean reward")
    after: float
    before_rollouts: int
    after_rollouts: int
    before_example: MixedText = Field(description="id of the rollout that shows the change best")
    after_example: MixedText
    reason: ForeignText = Field(
        default="",
        description="why the example before (if fixed or improved) or after fails",
    )


class Pairs(Frozen):
    """The cases with a reward on both sides, largest changes first."""

    before_run: str
    after_run: str
    pairs: tuple[Pair, ...]
    counts: dict[str, int]
    is_partial: bool = Field(default=False, description="a side has more rollouts than were read")


@dataclass(slots=True)
class _Played:
    """The rewards of one side on one case, and its best and worst rollout."""

    rewards: list[float] = field(default_factory=list)
    best: tuple[float, str, str] = (-math.inf, "", "")
    worst: tuple[float, str, str] = (math.inf, "", "")
    question: str = ""

    @property
    def mean(self) -> float:
        return sum(self.rewards) / len(self.rewards)

    def add(self, record: RolloutRecord, reward: float) -> None:
        found = (reward, str(record["id"]), failure_reason(record))
        self.rewards.append(reward)
        self.best = max(self.best, found, key=lambda each: each[0])
        self.worst = min(self.worst, found, key=lambda each: each[0])
        self.question = self.question or shown_input(record["case"])[:_SHOWN]


def _models_log(folder: RunFolder) -> ShardedLog:
    """Return the rollouts of a run, without those of null players."""
    return ShardedLog([each for each in folder.rollout_logs() if each.name != NULL_PLAYERS])


@operation("rollout.pairs", role=Role.OPERATOR, changes_state=False)
def pair_rollouts(request: PairRollouts, caller: Caller) -> Pairs:
    """Pair rollouts by case: before and after the training in a proof, or of two runs."""
    folder = readable_run(request.run, caller)
    if request.other:
        other = readable_run(request.other, caller)
        before, after = (_models_log(each) for each in (folder, other))
        ends = (folder.id, other.id)
    else:
        before, after = (ShardedLog([folder.rollouts_of(each)]) for each in _sides(folder))
        ends = (folder.id, folder.id)
    first, second = _by_case(before), _by_case(after)
    pairs = [_pair(case, first[case], second[case]) for case in first if case in second]
    pairs.sort(key=lambda each: (-abs(each.after - each.before), each.after, each.case))
    counts = dict.fromkeys(get_args(Change), 0)
    for each in pairs:
        counts[each.change] += 1
    is_partial = max(len(before), len(after)) > _MAX_ROLLOUTS
    return Pairs(
        before_run=ends[0],
        after_run=ends[1],
        pairs=tuple(pairs),
        counts=counts,
        is_partial=is_partial,
    )


def _sides(folder: RunFolder) -> Iterator[str]:
    for name in ("base", "trained"):
        if not folder.rollouts_of(name).is_dir():
            raise InvalidInput(
                f"run {folder.id} has no rollouts of the {name} model; only a proof has both "
                "sides: name another run in `other`"
            )
        yield name


def _by_case(log: ShardedLog) -> dict[str, _Played]:
    found: dict[str, _Played] = {}
    for item in log.items(0, _MAX_ROLLOUTS):
        if item.entry.reward is not None:
            case = str(item.record["case"]["id"])
            found.setdefault(case, _Played()).add(item.record, item.entry.reward)
    return found


def _pair(case: str, before: _Played, after: _Played) -> Pair:
    change = _change(before.mean, after.mean)
    is_worse = change in ("broken", "worsened")
    shown_before = before.best if is_worse else before.worst
    shown_after = after.best if change in ("fixed", "improved", "both right") else after.worst
    return Pair(
        case=case,
        question=before.question or after.question,
        change=change,
        before=before.mean,
        after=after.mean,
        before_rollouts=len(before.rewards),
        after_rollouts=len(after.rewards),
        before_example=shown_before[1],
        after_example=shown_after[1],
        reason=(shown_before if change in ("fixed", "improved") else shown_after)[2],
    )


def _change(before: float, after: float) -> Change:
    if after > before + _SAME:
        return "fixed" if after >= 1 - _SAME else "improved"
    if after < before - _SAME:
        return "broken" if before >= 1 - _SAME else "worsened"
    return "both right" if after >= 1 - _SAME else "both wrong"
