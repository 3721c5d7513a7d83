"""Auditing measures: what they said of rollouts, of players that know nothing, and when asked
again. Pure: whoever judged hands in what was seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from statistics import median

from sparring.contracts.verdicts import Judgement
from sparring.proofs.null_players import PLAYERS, NullPlayer

_OFTEN = 0.1  # of the cases: below, a null player may have been lucky
_SEEN_ENOUGH = 8
_PLAYED_ENOUGH = 16
_SATURATED = 0.98
_SLOW_SECONDS = 1.0
_UNSURE = 0.2
_RARELY = 0.05  # of the rollouts: a judge that stumbles now and then
_WAVERING = 0.02
_MUCH = 0.5  # of the reward
_BY_NAME: Mapping[str, NullPlayer] = {each.name: each for each in PLAYERS}


class Fault(StrEnum):
    """What can be wrong with a measure."""

    PASSED_BY_NOTHING = "passed by a null player"
    CONSTANT = "constant"
    NEVER_PASSED = "never passed"
    SATURATED = "saturated"
    DUPLICATE = "duplicate"
    FLAKY = "flaky"
    ORDER_DEPENDENT = "order-dependent"
    SLOW = "slow"
    BREAKS = "breaks"
    CANNOT_TELL = "cannot tell"


# What makes a reward wrong, or teaches the wrong thing; the others cost something, or say that
# there is nothing to learn.
GRAVE = frozenset(
    {
        Fault.PASSED_BY_NOTHING,
        Fault.CONSTANT,
        Fault.FLAKY,
        Fault.ORDER_DEPENDENT,
        Fault.BREAKS,
        Fault.CANNOT_TELL,
    }
)


ADVICE: Mapping[Fault, str] = {
    Fault.PASSED_BY_NOTHING: "ask for what only a right answer has: training will find this way; "
    "if it only sees to the form, say so with @measure(side_condition=True)",
    Fault.CONSTANT: "let it tell answers apart, or leave it out",
    Fault.FLAKY: "make it say the same of the same rollout: a coin cannot be learned from",
    Fault.ORDER_DEPENDENT: "judge each rollout by itself, without what is kept between them",
    Fault.BREAKS: "let it fail a rollout, or say cannot_tell, instead of raising",
    Fault.CANNOT_TELL: "a rollout that cannot be judged teaches nothing",
    Fault.SATURATED: "give it weight 0: it is shown, and its weight goes to the others",
    Fault.DUPLICATE: "give one of them weight 0",
    Fault.SLOW: "rollouts wait for it; make it faster, or judge fewer of them",
    Fault.NEVER_PASSED: "see whether anything can pass it",
}


@dataclass(frozen=True, slots=True)
class Sight:
    """One measure's word on one rollout, and on the same one again.

    `player` is a null player's name, or empty for a rollout that a model played. `at_once` is
    the score when judged again directly, `later` when judged in another order.
    """

    judgement: Judgement
    rollout: str
    case: str
    player: str = ""
    seconds: float = 0.0
    at_once: float | None = None
    later: float | None = None
    was_repeated: bool = False
    was_reordered: bool = False
    is_side_condition: bool = False

    @property
    def score(self) -> float | None:
        return self.judgement.verdict.score


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a measure, with the rollout that shows it."""

    measure: str
    fault: Fault
    message: str
    rollout: str = ""
    is_grave: bool = field(default=True)


def audit(sights: Sequence[Sight]) -> list[Finding]:
    """Everything that there is to find; the grave first."""
    by_measure: dict[str, list[Sight]] = defaultdict(list)
    for sight in sights:
        by_measure[sight.judgement.measure].append(sight)
    rewards = _rewards(sights)
    found: list[Finding] = []
    for name, seen in by_measure.items():
        found += _of_one(name, seen, rewards)
    if not any(each.fault is Fault.PASSED_BY_NOTHING for each in found):
        found += _whole_rewards(sights, {each.measure for each in found})
    found += _duplicates(by_measure, {each.measure for each in found if each.is_grave})
    return sorted(found, key=lambda each: not each.is_grave)


def _of_one(name: str, seen: Sequence[Sight], rewards: Mapping[str, float]) -> Iterator[Finding]:
    yield from _breaks(name, seen)
    yield from _unstable(name, seen)
    constant = list(_constant(name, seen))
    yield from constant or _null_passes(name, seen, rewards)
    yield from _saturated(name, seen)
    yield from _unsure(name, seen)
    slow = [each for each in seen if not each.judgement.cause]
    if slow and (usual := median(each.seconds for each in slow)) > _SLOW_SECONDS:
        told = f"takes {usual:.1f} s for a rollout"
        yield _finding(name, Fault.SLOW, told, max(slow, key=lambda each: each.seconds))


def _breaks(name: str, seen: Sequence[Sight]) -> Iterator[Finding]:
    broken = [each for each in seen if each.judgement.cause]
    if not broken:
        return
    first = broken[0]
    of = f"{_says(first)}, " if first.player else ""
    told = f"breaks on {of}{len(broken)} of {len(seen)} rollouts: {first.judgement.cause}"
    yield _finding(name, Fault.BREAKS, told, first, is_grave=len(broken) / len(seen) >= _RARELY)


def _unstable(name: str, seen: Sequence[Sight]) -> Iterator[Finding]:
    again = [each for each in seen if each.was_repeated and not each.judgement.cause]
    if flaky := [each for each in again if _differ(each.at_once, each.score)]:
        told = f"says something else when asked again: {len(flaky)} of {len(again)} rollouts"
        told += f", as {_told_twice(flaky[0])}"
        is_grave = len(flaky) / len(again) >= _RARELY
        yield _finding(name, Fault.FLAKY, told, flaky[0], is_grave=is_grave)
        return
    if moved := [each for each in again if each.was_reordered and _differ(each.later, each.score)]:
        told = f"depends on what it judged before: {len(moved)} rollouts"
        first = moved[0]
        told += f", as {_score(first.score)}, and {_score(first.later)} in another order"
        yield _finding(name, Fault.ORDER_DEPENDENT, told, first)


def _constant(name: str, seen: Sequence[Sight]) -> Iterator[Finding]:
    scored = [each for each in seen if each.score is not None]
    if len(scored) < _SEEN_ENOUGH or len({each.score for each in scored}) > 1:
        return
    first, score = scored[0], scored[0].score or 0.0
    if first.judgement.is_correct and first.is_side_condition:
        return
    if first.judgement.is_correct or score > 0:
        told = f"gives {score:g} to everything, an empty answer and any other alike"
        yield _finding(name, Fault.CONSTANT, told, first)
    elif sum(not each.player for each in scored) >= _SEEN_ENOUGH:
        played = sum(not each.player for each in scored)
        known = any(each.player and _BY_NAME[each.player].knows for each in scored)
        told = f"passed none of {played} rollouts of the model"
        told += ", and not the expected answer without tools" if known else ""
        yield _finding(name, Fault.NEVER_PASSED, told, first)


def _null_passes(
    name: str, seen: Sequence[Sight], rewards: Mapping[str, float]
) -> Iterator[Finding]:
    """One finding for the null player that passes most often. It is grave where much of the whole
    reward can be had so."""
    if any(each.is_side_condition for each in seen):
        return
    worst: tuple[float, list[Sight], int] = (0.0, [], 0)
    for player in PLAYERS:
        if player.knows:
            continue
        tried = [each for each in seen if each.player == player.name and each.score is not None]
        through = [each for each in tried if each.judgement.is_correct]
        if _is_often(len(through), len(tried)) and len(through) / len(tried) > worst[0]:
            worst = (len(through) / len(tried), through, len(tried))
    if worst[1]:
        first = worst[1][0]
        told = f"passes {_says(first)}: {len(worst[1])} of {worst[2]} cases"
        share = max(rewards.get(each.rollout, 0.0) for each in worst[1])
        if share < _MUCH:
            told += f", for {share:.0%} of the reward at most"
        yield _finding(name, Fault.PASSED_BY_NOTHING, told, first, is_grave=share >= _MUCH)


def _whole_rewards(sights: Sequence[Sight], known: set[str]) -> Iterator[Finding]:
    """All that is rewarded may be side conditions, so that saying nothing gets it all."""
    by_rollout: dict[str, list[Sight]] = defaultdict(list)
    for sight in sights:
        is_null = sight.player and not _BY_NAME[sight.player].knows
        if is_null and sight.judgement.weight > 0:
            by_rollout[sight.rollout].append(sight)
    through: dict[str, list[Sight]] = defaultdict(list)
    tried: dict[str, int] = defaultdict(int)
    for seen in by_rollout.values():
        tried[seen[0].player] += 1
        if all(each.judgement.is_correct for each in seen):
            through[seen[0].player].append(seen[0])
    for player, passing in through.items():
        first = passing[0]
        if _is_often(len(passing), tried[player]) and first.judgement.measure not in known:
            told = f"all that is rewarded is met by {_says(first)}: "
            told += f"{len(passing)} of {tried[player]} cases; reward what is said, too"
            yield _finding(first.judgement.measure, Fault.PASSED_BY_NOTHING, told, first)
            return


def _saturated(name: str, seen: Sequence[Sight]) -> Iterator[Finding]:
    played = [each for each in seen if not each.player and each.score is not None]
    if len(played) < _PLAYED_ENOUGH or played[0].judgement.weight <= 0:
        return
    through = sum(bool(each.judgement.is_correct) for each in played)
    if through / len(played) >= _SATURATED:
        told = f"passes {through} of {len(played)} rollouts already: nothing is learned from it"
        yield _finding(name, Fault.SATURATED, told, played[0])


def _unsure(name: str, seen: Sequence[Sight]) -> Iterator[Finding]:
    judged = [each for each in seen if not each.judgement.cause]
    silent = [each for each in judged if each.score is None]
    if judged and len(silent) / len(judged) > _UNSURE:
        told = f"cannot tell of {len(silent)} of {len(judged)} rollouts: "
        told += silent[0].judgement.verdict.reason
        yield _finding(name, Fault.CANNOT_TELL, told, silent[0])


def _duplicates(by_measure: Mapping[str, Sequence[Sight]], known: set[str]) -> Iterator[Finding]:
    """Two measures that say the same of everything count one thing twice."""
    scores = {
        name: {each.rollout: each.score for each in seen if each.score is not None}
        for name, seen in by_measure.items()
        if name not in known and seen[0].judgement.weight > 0
    }
    for one, other in combinations(scores, 2):
        shared = [rollout for rollout in scores[one] if rollout in scores[other]]
        values = {scores[one][rollout] for rollout in shared}
        same = all(scores[one][rollout] == scores[other][rollout] for rollout in shared)
        if len(shared) >= _PLAYED_ENOUGH and len(values) > 1 and same:
            first = by_measure[one][0]
            told = f"says the same as {other} of all {len(shared)} rollouts: it counts twice"
            yield _finding(one, Fault.DUPLICATE, told, first)


def _is_often(part: int, whole: int) -> bool:
    return part >= min(2, whole) and whole > 0 and part / whole > _OFTEN


def _rewards(sights: Sequence[Sight]) -> dict[str, float]:
    """The reward of each rollout; what could not be judged counts as nothing."""
    got: dict[str, float] = defaultdict(float)
    whole: dict[str, float] = defaultdict(float)
    for sight in sights:
        got[sight.rollout] += sight.judgement.weight * (sight.score or 0.0)
        whole[sight.rollout] += sight.judgement.weight
    return {rollout: got[rollout] / weight for rollout, weight in whole.items() if weight}


def _differ(one: float | None, other: float | None) -> bool:
    """A judge that gives shares may waver a little."""
    if one is None or other is None:
        return one is not other
    return abs(one - other) > _WAVERING


def _finding(
    name: str, fault: Fault, message: str, shown_by: Sight, *, is_grave: bool = True
) -> Finding:
    return Finding(name, fault, message, shown_by.rollout, fault in GRAVE and is_grave)


def _says(sight: Sight) -> str:
    return _BY_NAME[sight.player].says


def _told_twice(sight: Sight) -> str:
    return f"{_score(sight.score)} and {_score(sight.at_once)}"


def _score(score: float | None) -> str:
    return "no verdict" if score is None else f"{score:g}"
