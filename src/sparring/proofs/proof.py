"""Compares the base and the trained model on the same cases and states a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparring.contracts.rollouts import Rollout
from sparring.contracts.verdicts import Judgement
from sparring.proofs.eval_summary import Reasons
from sparring.proofs.paired import ROUNDING, Difference, Standing, paired_difference

_MAX_MISSING = 0.1  # of the cases
_REASONS_SHOWN = 3


class Level(StrEnum):
    """How good the trained model is, by its mean reward."""

    POOR = "still poor"
    HALFWAY = "halfway there"
    GOOD = "good"
    SATURATED = "saturated"

    @classmethod
    def of(cls, share: float) -> Level:
        """Return the level of a mean reward or pass rate."""
        limits = ((0.5, cls.POOR), (0.8, cls.HALFWAY), (0.98, cls.GOOD))
        return next((level for limit, level in limits if share < limit), cls.SATURATED)


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """One measure before and after training. A guard carries no reward."""

    name: str
    difference: Difference
    is_guard: bool


@dataclass(frozen=True, slots=True)
class Flip:
    """A case whose mean reward changed, with the id of one example rollout of each model."""

    case: str
    before: float
    after: float
    base: str
    trained: str


@dataclass(frozen=True, slots=True)
class StillFails:
    """A frequent reason why the trained model fails a measure."""

    measure: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Proof:
    """The verdict with its evidence.

    `also` is the difference on the second suite. `regressed` names the guards that got worse, and
    the second suite if its reward did; if there are any, the verdict is worse. `unmoved` names
    rewarded measures that got worse, and those below the level good that show no change.
    `unscored` counts rollouts without a reward, of `base` and `trained`.
    """

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
        """Whether the verdict is better, the level good or saturated, and no measure unmoved."""
        is_high = self.level in (Level.GOOD, Level.SATURATED)
        return self.standing is Standing.BETTER and is_high and not self.unmoved

    def __str__(self) -> str:
        return f"{self.standing.value}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class PlayedSides:
    """The rollouts of both models on the same cases."""

    base: Sequence[Rollout]
    trained: Sequence[Rollout]


def prove(played: PlayedSides, *, chances: int = 1, also: PlayedSides | None = None) -> Proof:
    """Compare base and trained model. The interval of the difference in reward gives the verdict.

    Guards and a second suite (`also`) can only change the verdict to worse or not shown. They share
    one error rate, so that many guards do not cause many false alarms. `chances` is the number of
    comparisons that share the error rate of the reward.
    """
    reward = paired_difference(
        rewards(played.base),
        rewards(played.trained),
        chances=chances,
        is_single=not any(each.key.index for each in (*played.base, *played.trained)),
    )
    names = list(dict.fromkeys(_measures(played.base)) | dict.fromkeys(_measures(played.trained)))
    weights = _weights((*played.base, *played.trained))
    guards = [name for name in names if not weights.get(name)]
    comparisons = max(1, len(guards) + (also is not None))
    changes = _measure_changes(played, names, guards, comparisons)
    second = None
    if also is not None:
        second = paired_difference(rewards(also.base), rewards(also.trained), chances=comparisons)
    regressed = _regressed(changes, second)
    missing = missing_cases((*played.base, *played.trained), reward)
    doubts = [*filter(None, [missing]), *_unjudged_guards(guards, changes)]
    if also is not None and second is None:
        doubts.append("the second suite could not be scored on both sides")
    standing = _standing(reward, regressed, doubts)
    level = Level.of(reward.after) if reward is not None else None
    sentence = _sentence(standing, reward, regressed, doubts)
    if level is not None:
        sentence = f"{level.value} after training: {sentence}{_by_measure(changes)}"
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
        tuple(each.name for each in changes if _is_unmoved(each)),
        tuple(frequent_failures(played.trained)),
    )


def _measure_changes(
    played: PlayedSides, names: Sequence[str], guards: Sequence[str], looks: int
) -> list[MeasureChange]:
    changes = []
    for name in names:
        is_guard = name in guards
        difference = paired_difference(
            measured(played.base, name),
            measured(played.trained, name),
            chances=looks if is_guard else 1,
        )
        if difference is not None:
            changes.append(MeasureChange(name, difference, is_guard))
    return changes


def _regressed(changes: Sequence[MeasureChange], second: Difference | None) -> list[str]:
    regressed = [
        each.name
        for each in changes
        if each.is_guard and each.difference.standing is Standing.WORSE
    ]
    if second is not None and second.standing is Standing.WORSE:
        regressed.append("the second suite")
    return regressed


def _standing(
    reward: Difference | None, regressed: Sequence[str], doubts: Sequence[str]
) -> Standing:
    if regressed:
        return Standing.WORSE
    if reward is None:
        return Standing.NOT_SHOWN
    is_doubtful = bool(doubts) and reward.standing is Standing.BETTER
    return Standing.NOT_SHOWN if is_doubtful else reward.standing


def missing_cases(rollouts: Iterable[Rollout], reward: Difference | None) -> str:
    """Return a text if more than a tenth of the cases lack a score on either side, else an empty
    one. `rollouts` are those of both sides."""
    cases = {each.case.id for each in rollouts}
    missing = len(cases) - (reward.cases if reward else 0)
    if not cases or missing / len(cases) <= _MAX_MISSING:
        return ""
    return f"{missing} of {len(cases)} cases could not be scored on both sides"


def _unjudged_guards(guards: Sequence[str], changes: Sequence[MeasureChange]) -> Iterator[str]:
    judged = {each.name for each in changes}
    for name in guards:
        if name not in judged:
            yield f"{name} could not be judged on both sides"


def _sentence(
    standing: Standing, reward: Difference | None, regressed: Sequence[str], doubts: Sequence[str]
) -> str:
    if reward is None:
        worse = f"{', '.join(regressed)} got worse; " if regressed else ""
        return f"{worse}no case could be scored on both sides, so there is no reward to compare"
    result = (
        f"reward {reward.before:.3f} → {reward.after:.3f}, {reward.value:+.3f} "
        f"({reward.low:+.3f} … {reward.high:+.3f}) on {reward.cases} cases"
    )
    if regressed:
        return f"{', '.join(regressed)} got worse: {result}"
    if doubts:
        return f"{'; '.join(doubts)}: {result}"
    if standing is Standing.NOT_SHOWN and reward.low > 0:
        return f"{result}; only {reward.differing} cases came out differently, too few to tell"
    if not reward.differing:
        return f"{result}; no case came out differently"
    if standing is Standing.NOT_SHOWN:
        effect = f"{reward.smallest_effect:.3f}"
        result += f"; an effect of {effect} or more would have been shown with 80 % power"
    return result


def _by_measure(changes: Sequence[MeasureChange]) -> str:
    """Return text with each rewarded measure before and after, and whether a change is shown."""
    parts = [_change(each) for each in changes if not each.is_guard]
    return f"; {', '.join(parts)}" if parts else ""


def _change(change: MeasureChange) -> str:
    before, after = _shown_means(change.difference.before, change.difference.after)
    if change.difference.standing is Standing.WORSE:
        return f"{change.name} got worse ({before} → {after})"
    if not _is_unmoved(change):
        return f"{change.name} {before} → {after}"
    if before == after:
        return f"{change.name} did not change ({after})"
    return f"{change.name} shows no change ({before} → {after})"


def _shown_means(before: float, after: float) -> tuple[str, str]:
    """Show two means as shares; those of a reward function may lie outside 0 … 1."""
    form = ".0%" if min(before, after) >= 0 and max(before, after) <= 1 else ".3g"
    return format(before, form), format(after, form)


def _is_unmoved(change: MeasureChange) -> bool:
    is_good = Level.of(change.difference.after) in (Level.GOOD, Level.SATURATED)
    standing = change.difference.standing
    is_fine = standing is Standing.BETTER or (is_good and standing is Standing.NOT_SHOWN)
    return not change.is_guard and not is_fine


def frequent_failures(rollouts: Iterable[Rollout]) -> Iterator[StillFails]:
    """Yield the most frequent reasons for failing each rewarded measure; similar reasons are
    merged."""
    reasons: dict[str, Reasons] = {}
    for rollout in rollouts:
        for judgement in rollout.judgements:
            if judgement.weight > 0 and judgement.is_correct is False:
                measure_reasons = reasons.setdefault(judgement.measure, Reasons())
                measure_reasons.add(judgement.verdict.reason)
    for measure, counted in reasons.items():
        for each in counted.most_common()[:_REASONS_SHOWN]:
            yield StillFails(measure, each["count"], each["reason"])


# ---------------------------------------------------------------------- by case


def rewards(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """Return the mean reward of each case with a scored rollout."""
    return _means((each.case.id, each.reward) for each in rollouts)


def measured(rollouts: Iterable[Rollout], measure: str) -> dict[str, float]:
    """Return the mean of a measure over each case's judged rollouts: the share that pass, or the
    mean score if the measure returns scores and has no threshold below 1."""
    return _means(
        (rollout.case.id, _score_or_pass(each))
        for rollout in rollouts
        for each in rollout.judgements
        if each.measure == measure
    )


def _score_or_pass(judgement: Judgement) -> float | None:
    if judgement.is_correct is None:
        return None
    has_threshold = judgement.threshold < 1
    return float(judgement.is_correct) if has_threshold else judgement.verdict.score


def flips(played: PlayedSides) -> list[Flip]:
    """Return the cases whose mean reward changed, largest changes first."""
    before, after = rewards(played.base), rewards(played.trained)
    shared = [case for case in before if case in after]
    changed = [case for case in shared if abs(after[case] - before[case]) > ROUNDING]
    changed.sort(key=lambda case: -abs(after[case] - before[case]))
    base, trained = _scored_by_case(played.base), _scored_by_case(played.trained)
    return [
        Flip(
            case,
            before[case],
            after[case],
            _example(base[case], is_best=after[case] < before[case]),
            _example(trained[case], is_best=after[case] > before[case]),
        )
        for case in changed
    ]


def _scored_by_case(rollouts: Iterable[Rollout]) -> dict[str, list[Rollout]]:
    by_case: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        if rollout.reward is not None:
            by_case.setdefault(rollout.case.id, []).append(rollout)
    return by_case


def _example(scored: Sequence[Rollout], *, is_best: bool) -> str:
    """Return the id of the rollout with the highest or lowest reward."""
    chosen = (max if is_best else min)(scored, key=lambda each: each.reward or 0.0)
    return chosen.id


def _means(pairs: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    by_case: dict[str, list[float]] = {}
    for case, value in pairs:
        if value is not None:
            by_case.setdefault(case, []).append(value)
    return {case: sum(values) / len(values) for case, values in by_case.items()}


def _measures(rollouts: Iterable[Rollout]) -> list[str]:
    return [each.measure for rollout in rollouts for each in rollout.judgements]


def _weights(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """Return the largest weight of each measure."""
    weights: dict[str, float] = {}
    for rollout in rollouts:
        for each in rollout.judgements:
            weights[each.measure] = max(each.weight, weights.get(each.measure, 0.0))
    return weights
