"""A proof: what base and trained made of the same cases, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparring.contracts.rollouts import Rollout
from sparring.proofs.eval_summary import Reasons
from sparring.proofs.paired import Difference, Standing, paired_difference

_LOST = 0.1  # of the cases
_STILL_SHOWN = 3


class Level(StrEnum):
    """How good the trained model is now, by the reward it gets."""

    POOR = "still poor"
    HALFWAY = "halfway there"
    GOOD = "good"
    SATURATED = "saturated"

    @classmethod
    def of(cls, share: float) -> Level:
        bars = ((0.5, cls.POOR), (0.8, cls.HALFWAY), (0.98, cls.GOOD))
        return next((level for bar, level in bars if share < bar), cls.SATURATED)


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """One measure before and after. A guard is one that was not trained on."""

    name: str
    difference: Difference
    is_guard: bool


@dataclass(frozen=True, slots=True)
class Flip:
    """A case that came out differently, with a rollout of each side that shows it."""

    case: str
    before: float
    after: float
    base: str
    trained: str


@dataclass(frozen=True, slots=True)
class StillFails:
    """Why the trained model still fails a measure, the most frequent reasons first."""

    measure: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Proof:
    """The verdict, with what it rests on. `regressed` names what got worse although nobody
    trained on it: then the trained model is not better, whatever its reward says. `unmoved` names
    what carries reward, is not good, and did not change."""

    standing: Standing
    sentence: str
    reward: Difference | None
    measures: tuple[MeasureChange, ...] = ()
    also: Difference | None = None
    regressed: tuple[str, ...] = ()
    flips: tuple[Flip, ...] = ()
    unscored: Mapping[str, int] | None = None
    level: Level | None = None
    unmoved: tuple[str, ...] = ()
    still_fails: tuple[StillFails, ...] = ()

    @property
    def is_good(self) -> bool:
        """Better, good by now, and in everything that carries reward."""
        is_high = self.level in (Level.GOOD, Level.SATURATED)
        return self.standing is Standing.BETTER and is_high and not self.unmoved

    def __str__(self) -> str:
        return f"{self.standing.value}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Played:
    """The rollouts of the two, in the order of playing."""

    base: Sequence[Rollout]
    trained: Sequence[Rollout]


def prove(played: Played, *, chances: int = 1, also: Played | None = None) -> Proof:
    """One interval decides: that of the reward. Measures that were not rewarded, and a second
    suite, are watched; their error is shared out, so that many guards are not many false alarms.
    """
    reward = paired_difference(
        rewards(played.base),
        rewards(played.trained),
        chances=chances,
        is_single=not any(each.key.index for each in played.base),
    )
    names = list(dict.fromkeys(_measures(played.base)) | dict.fromkeys(_measures(played.trained)))
    weights = _weights((*played.base, *played.trained))
    guards = [name for name in names if not weights.get(name)]
    looks = max(1, len(guards) + (also is not None))
    changes = []
    for name in names:
        is_guard = name in guards
        difference = paired_difference(
            correct(played.base, name),
            correct(played.trained, name),
            chances=looks if is_guard else 1,
        )
        if difference is not None:
            changes.append(MeasureChange(name, difference, is_guard))
    second = None
    if also is not None:
        second = paired_difference(rewards(also.base), rewards(also.trained), chances=looks)
    regressed = [
        each.name
        for each in changes
        if each.is_guard and each.difference.standing is Standing.WORSE
    ]
    if second is not None and second.standing is Standing.WORSE:
        regressed.append("the second suite")
    doubts = [*_lost(played, reward), *_silent(guards, changes)]
    if also is not None and second is None:
        doubts.append("the second suite could not be scored on both sides")
    standing = _standing(reward, regressed, doubts)
    level = Level.of(reward.after) if reward is not None else None
    unmoved = tuple(each.name for each in changes if _is_unmoved(each))
    sentence = _sentence(standing, reward, regressed, doubts)
    if level is not None:
        sentence = f"{level.value} now: {sentence}{_by_measure(changes)}"
    return Proof(
        standing,
        sentence,
        reward,
        tuple(changes),
        second,
        tuple(regressed),
        tuple(flips(played)),
        {
            "base": sum(each.reward is None for each in played.base),
            "trained": sum(each.reward is None for each in played.trained),
        },
        level,
        unmoved,
        tuple(still_fails(played.trained)),
    )


def _standing(
    reward: Difference | None, regressed: Sequence[str], doubts: Sequence[str]
) -> Standing:
    if regressed:
        return Standing.WORSE
    if reward is None:
        return Standing.NOT_SHOWN
    is_doubtful = bool(doubts) and reward.standing is Standing.BETTER
    return Standing.NOT_SHOWN if is_doubtful else reward.standing


def _lost(played: Played, reward: Difference | None) -> Iterator[str]:
    """Cases that could be scored on one side only, or on none, may be the ones that fail."""
    cases = {each.case.id for each in (*played.base, *played.trained)}
    missing = len(cases) - (reward.cases if reward else 0)
    if cases and missing / len(cases) > _LOST:
        yield f"{missing} of {len(cases)} cases could not be scored on both sides"


def _silent(guards: Sequence[str], changes: Sequence[MeasureChange]) -> Iterator[str]:
    told = {each.name for each in changes}
    for name in guards:
        if name not in told:
            yield f"{name} could not be judged on both sides"


def _sentence(
    standing: Standing, reward: Difference | None, regressed: Sequence[str], doubts: Sequence[str]
) -> str:
    if reward is None:
        return "no case could be scored on both sides, so that nothing can be compared"
    told = (
        f"reward {reward.before:.3f} → {reward.after:.3f}, {reward.value:+.3f} "
        f"({reward.low:+.3f} … {reward.high:+.3f}) on {reward.cases} cases"
    )
    if regressed:
        return f"{', '.join(regressed)} got worse: {told}"
    if doubts:
        return f"{'; '.join(doubts)}: {told}"
    if standing is Standing.NOT_SHOWN and reward.low > 0:
        return f"{told}; only {reward.differing} cases came out differently, too few to tell"
    if not reward.differing:
        return f"{told}; no case came out differently at all"
    if standing is Standing.NOT_SHOWN:
        told += f"; an effect of {reward.smallest_effect:.3f} or more would have been shown"
    return told


def _by_measure(changes: Sequence[MeasureChange]) -> str:
    """Before and after of each measure that carries reward; one that did not move is named."""
    told = [
        f"{each.name} did not change ({each.difference.after:.0%})"
        if _is_unmoved(each)
        else f"{each.name} {each.difference.before:.0%} → {each.difference.after:.0%}"
        for each in changes
        if not each.is_guard
    ]
    return f"; {', '.join(told)}" if told else ""


def _is_unmoved(change: MeasureChange) -> bool:
    is_good = Level.of(change.difference.after) in (Level.GOOD, Level.SATURATED)
    return not (change.is_guard or is_good) and change.difference.standing is Standing.NOT_SHOWN


def still_fails(rollouts: Iterable[Rollout]) -> Iterator[StillFails]:
    """Of each measure that carries reward, why it was not passed, reasons that are alike as one."""
    reasons: dict[str, Reasons] = {}
    for rollout in rollouts:
        for told in rollout.judgements:
            if told.weight > 0 and told.is_correct is False:
                reasons.setdefault(told.measure, Reasons()).add(told.verdict.reason)
    for measure, counted in reasons.items():
        for each in counted.most_common()[:_STILL_SHOWN]:
            yield StillFails(measure, each["count"], each["reason"])


# ---------------------------------------------------------------------- by case


def rewards(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """The mean reward of each case that has any."""
    return _means((each.case.id, each.reward) for each in rollouts)


def correct(rollouts: Iterable[Rollout], measure: str) -> dict[str, float]:
    """The share of each case's rollouts that a measure calls correct, where it could tell."""
    return _means(
        (rollout.case.id, None if told.is_correct is None else float(told.is_correct))
        for rollout in rollouts
        for told in rollout.judgements
        if told.measure == measure
    )


def flips(played: Played) -> list[Flip]:
    """Cases whose mean reward changed, the largest changes first."""
    before, after = rewards(played.base), rewards(played.trained)
    changed = [case for case in before if case in after and before[case] != after[case]]
    changed.sort(key=lambda case: -abs(after[case] - before[case]))
    return [
        Flip(
            case,
            before[case],
            after[case],
            _typical(played.base, case, best=after[case] < before[case]),
            _typical(played.trained, case, best=after[case] > before[case]),
        )
        for case in changed
    ]


def _typical(rollouts: Sequence[Rollout], case: str, *, best: bool) -> str:
    """The rollout that shows the side of the change it is on."""
    scored = [each for each in rollouts if each.case.id == case and each.reward is not None]
    chosen = (max if best else min)(scored, key=lambda each: each.reward or 0.0)
    return chosen.id


def _means(pairs: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for case, value in pairs:
        if value is not None:
            found.setdefault(case, []).append(value)
    return {case: sum(values) / len(values) for case, values in found.items()}


def _measures(rollouts: Iterable[Rollout]) -> list[str]:
    return [told.measure for rollout in rollouts for told in rollout.judgements]


def _weights(rollouts: Iterable[Rollout]) -> dict[str, float]:
    found: dict[str, float] = {}
    for rollout in rollouts:
        for told in rollout.judgements:
            found[told.measure] = max(told.weight, found.get(told.measure, 0.0))
    return found
