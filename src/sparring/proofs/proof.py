"""Compares the base and the trained model on the same cases and states a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import (
    Difference,
    Flip,
    Level,
    MeasureChange,
    Proof,
    Standing,
    StillFails,
)
from sparring.contracts.verdicts import Judgement
from sparring.proofs.eval_summary import Reasons
from sparring.proofs.paired import ROUNDING, paired_difference

_MAX_MISSING = 0.1  # of the cases
_REASONS_SHOWN = 3


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
    weights = _weights((*played.base, *played.trained))
    guards = [name for name, weight in weights.items() if not weight]
    comparisons = max(1, len(guards) + (also is not None))
    changes = _measure_changes(played, weights, guards, comparisons)
    second = None
    if also is not None:
        second = paired_difference(rewards(also.base), rewards(also.trained), chances=comparisons)
    regressed = _regressed(changes, second)
    missing = missing_cases((*played.base, *played.trained), reward)
    doubts = [missing] if missing else []
    doubts += [
        f"{name} could not be judged on both sides" for name in guards if name not in changes
    ]
    if also is not None and second is None:
        doubts.append("the second suite could not be scored on both sides")
    standing = _standing(reward, regressed, doubts)
    level = Level.of(reward.after) if reward is not None else None
    sentence = _sentence(standing, reward, regressed, doubts)
    if level is not None:
        rewarded = [_describe(name, each) for name, each in changes.items() if not each.is_guard]
        by_measure = f"; {', '.join(rewarded)}" if rewarded else ""
        sentence = f"{level.value} after training: {sentence}{by_measure}"
    unmoved = tuple(name for name, each in changes.items() if _is_unmoved(each))
    is_high = level in (Level.GOOD, Level.SATURATED)
    return Proof(
        verdict=standing,
        sentence=sentence,
        level=level,
        is_good=standing is Standing.BETTER and is_high and not unmoved,
        unmoved=unmoved,
        still_fails=tuple(frequent_failures(played.trained)),
        reward=reward,
        measures=changes,
        also=second,
        regressed=tuple(regressed),
        flips=tuple(flips(played)),
        unscored={
            "base": sum(each.reward is None for each in played.base),
            "trained": sum(each.reward is None for each in played.trained),
        },
    )


def _measure_changes(
    played: PlayedSides, names: Iterable[str], guards: Sequence[str], looks: int
) -> dict[str, MeasureChange]:
    changes = {}
    for name in names:
        is_guard = name in guards
        difference = paired_difference(
            measured(played.base, name),
            measured(played.trained, name),
            chances=looks if is_guard else 1,
        )
        if difference is not None:
            changes[name] = MeasureChange(**asdict(difference), is_guard=is_guard)
    return changes


def _regressed(changes: Mapping[str, MeasureChange], second: Difference | None) -> list[str]:
    regressed = [
        name for name, each in changes.items() if each.is_guard and each.standing is Standing.WORSE
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


def _describe(name: str, change: MeasureChange) -> str:
    """Return text with the measure before and after, and whether a change is shown."""
    means = change.before, change.after
    form = ".0%" if min(means) >= 0 and max(means) <= 1 else ".3g"  # reward functions may leave 0…1
    before, after = (format(mean, form) for mean in means)
    if change.standing is Standing.WORSE:
        return f"{name} got worse ({before} → {after})"
    if not _is_unmoved(change):
        return f"{name} {before} → {after}"
    if before == after:
        return f"{name} did not change ({after})"
    return f"{name} shows no change ({before} → {after})"


def _is_unmoved(change: MeasureChange) -> bool:
    is_good = Level.of(change.after) in (Level.GOOD, Level.SATURATED)
    is_fine = change.standing is Standing.BETTER or (
        is_good and change.standing is Standing.NOT_SHOWN
    )
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
            yield StillFails(measure, each.count, each.reason)


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


def _weights(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """Return the largest weight of each measure, in the order in which they appear."""
    weights: dict[str, float] = {}
    for rollout in rollouts:
        for each in rollout.judgements:
            weights[each.measure] = max(each.weight, weights.get(each.measure, 0.0))
    return weights
