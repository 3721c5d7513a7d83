"""Audits measures: finds faults in their judgements of models and of null players.

The functions are pure. The caller runs the measures and passes in their judgements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from sparring.contracts.summaries import AuditFinding, Fault
from sparring.contracts.verdicts import Judgement
from sparring.proofs.null_players import PLAYERS, NullPlayer

_LUCK_SHARE = 0.1  # up to this share of the cases, a null player may pass by luck
_MIN_SCORED = 8
_MIN_ROLLOUTS = 16
_SATURATED = 0.98
_SLOW_SECONDS = 1.0
_CANNOT_TELL_SHARE = 0.2
_GRAVE_SHARE = 0.05  # below this share, errors and flakiness are not grave
_SCORE_TOLERANCE = 0.02
_GRAVE_REWARD = 0.5  # of the full reward
_BY_NAME: Mapping[str, NullPlayer] = {each.name: each for each in PLAYERS}


# Faults that make a reward wrong. The others only waste time or weight, or show that there is
# nothing to learn.
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
    Fault.PASSED_BY_NOTHING: "require something that only a correct answer has, because training "
    "will exploit this; if the measure only checks the form, declare it with "
    "@measure(side_condition=True)",
    Fault.CONSTANT: "make it distinguish between answers, or remove it",
    Fault.FLAKY: "make it return the same verdict for the same rollout; noise cannot be learned",
    Fault.ORDER_DEPENDENT: "judge each rollout on its own, without state shared between rollouts",
    Fault.BREAKS: "return failed or cannot_tell instead of raising",
    Fault.CANNOT_TELL: "return a verdict on more rollouts; training learns nothing from the others",
    Fault.SATURATED: "give it weight 0: it is still shown, and the others share its weight",
    Fault.DUPLICATE: "give one of them weight 0",
    Fault.SLOW: "rollouts wait for it; make it faster, or judge fewer of them",
    Fault.NEVER_PASSED: "check whether any answer can pass it",
}


@dataclass(frozen=True, slots=True)
class Observation:
    """One measure's judgement of one rollout, with the scores of repeated judgements.

    `player` is a null player's name, or empty for a rollout that a model played. `at_once` is
    the score of an immediate repeat, `later` the score in a different order. A judgement that
    failed, for example with a timeout, is no repeat.
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
        """The score of the first judgement; None if the measure could not tell."""
        return self.judgement.verdict.score


def audit(observations: Sequence[Observation]) -> list[AuditFinding]:
    """Return all findings, grave ones first."""
    by_measure: dict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        by_measure[observation.judgement.measure].append(observation)
    rewards = _rewards(observations)
    findings: list[AuditFinding] = []
    for name, of_measure in by_measure.items():
        findings += _audit_measure(name, of_measure, rewards)
    grave = [each for each in findings if each.is_grave]
    if not any(each.fault is Fault.PASSED_BY_NOTHING for each in grave):
        findings += _full_reward_passes(observations, {each.measure for each in grave})
    findings += _duplicates(by_measure, {each.measure for each in findings if each.is_grave})
    return sorted(findings, key=lambda each: not each.is_grave)


def _audit_measure(
    name: str, observations: Sequence[Observation], rewards: Mapping[str, float]
) -> Iterator[AuditFinding]:
    yield from _breaks(name, observations)
    yield from _unstable(name, observations)
    constant = list(_constant(name, observations))
    yield from constant or _null_passes(name, observations, rewards)
    yield from _saturated(name, observations)
    yield from _cannot_tell(name, observations)
    timed = [each for each in observations if not each.judgement.cause and each.seconds]
    if timed and (typical := median(each.seconds for each in timed)) > _SLOW_SECONDS:
        message = f"takes {typical:.1f} s per rollout"
        yield _finding(name, Fault.SLOW, message, max(timed, key=lambda each: each.seconds))


def _breaks(name: str, observations: Sequence[Observation]) -> Iterator[AuditFinding]:
    broken = [each for each in observations if each.judgement.cause]
    if not broken:
        return
    first = broken[0]
    answer = f"{_answer_name(first)}, " if first.player else ""
    message = (
        f"breaks on {answer}{len(broken)} of {len(observations)} rollouts: {first.judgement.cause}"
    )
    is_grave = len(broken) / len(observations) >= _GRAVE_SHARE
    yield _finding(name, Fault.BREAKS, message, first, is_grave=is_grave)


def _unstable(name: str, observations: Sequence[Observation]) -> Iterator[AuditFinding]:
    repeated = [each for each in observations if each.was_repeated and not each.judgement.cause]
    if flaky := [each for each in repeated if _differ(each.at_once, each.score)]:
        first = flaky[0]
        message = f"gives a different score when it runs again: {len(flaky)} of {len(repeated)} "
        message += f"rollouts, for example {_score(first.score)}, then {_score(first.at_once)}"
        is_grave = len(flaky) / len(repeated) >= _GRAVE_SHARE
        yield _finding(name, Fault.FLAKY, message, first, is_grave=is_grave)
        return
    reordered = [each for each in repeated if each.was_reordered]
    if moved := [each for each in reordered if _differ(each.later, each.score)]:
        first = moved[0]
        message = f"depends on what it judged before: {len(moved)} of {len(reordered)} rollouts, "
        message += f"for example {_score(first.score)}, then {_score(first.later)} in another order"
        is_grave = len(moved) / len(reordered) >= _GRAVE_SHARE
        yield _finding(name, Fault.ORDER_DEPENDENT, message, first, is_grave=is_grave)


def _constant(name: str, observations: Sequence[Observation]) -> Iterator[AuditFinding]:
    scored = [each for each in observations if each.score is not None]
    if len(scored) < _MIN_SCORED or len({each.score for each in scored}) > 1:
        return
    first, score = scored[0], scored[0].score or 0.0
    if first.judgement.is_correct and first.is_side_condition:
        return
    if first.judgement.is_correct or score > 0:
        message = f"gives {score:g} to every answer, even an empty one"
        yield _finding(name, Fault.CONSTANT, message, first)
    elif sum(not each.player for each in scored) >= _MIN_SCORED:
        played = sum(not each.player for each in scored)
        has_expected = any(each.player and _BY_NAME[each.player].knows for each in scored)
        message = f"passed none of the model's {played} rollouts"
        message += ", nor the expected answer without tools" if has_expected else ""
        yield _finding(name, Fault.NEVER_PASSED, message, first)


def _null_passes(
    name: str, observations: Sequence[Observation], rewards: Mapping[str, float]
) -> Iterator[AuditFinding]:
    """Report the null player that passes most often; grave if it earns half or more."""
    if any(each.is_side_condition for each in observations):
        return
    worst: tuple[float, list[Observation], int] = (0.0, [], 0)
    for player in PLAYERS:
        if player.knows:
            continue
        scored = [
            each for each in observations if each.player == player.name and each.score is not None
        ]
        passing = [each for each in scored if each.judgement.is_correct]
        if _is_often(len(passing), len(scored)) and len(passing) / len(scored) > worst[0]:
            worst = (len(passing) / len(scored), passing, len(scored))
    if worst[1]:
        first = worst[1][0]
        message = f"passes {_answer_name(first)}: {len(worst[1])} of {worst[2]} cases"
        share = max(rewards.get(each.rollout, 0.0) for each in worst[1])
        if share < _GRAVE_REWARD:
            message += f", for at most {share:.0%} of the reward"
        is_grave = share >= _GRAVE_REWARD
        yield _finding(name, Fault.PASSED_BY_NOTHING, message, first, is_grave=is_grave)


def _full_reward_passes(
    observations: Sequence[Observation], reported: set[str]
) -> Iterator[AuditFinding]:
    """Find a null player that passes all rewarded measures: perhaps all are side conditions."""
    by_rollout: dict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        is_null = observation.player and not _BY_NAME[observation.player].knows
        if is_null and observation.judgement.weight > 0:
            by_rollout[observation.rollout].append(observation)
    passing: dict[str, list[Observation]] = defaultdict(list)
    totals: dict[str, int] = defaultdict(int)
    for of_rollout in by_rollout.values():
        first = of_rollout[0]
        totals[first.player] += 1
        if all(each.judgement.is_correct for each in of_rollout):
            passing[first.player].append(first)
    for player, passes in passing.items():
        first = passes[0]
        if _is_often(len(passes), totals[player]) and first.judgement.measure not in reported:
            message = f"passes {_answer_name(first)}, and so does every other rewarded measure: "
            message += f"{len(passes)} of {totals[player]} cases; also reward the answer's content"
            yield _finding(first.judgement.measure, Fault.PASSED_BY_NOTHING, message, first)
            return


def _saturated(name: str, observations: Sequence[Observation]) -> Iterator[AuditFinding]:
    played = [each for each in observations if not each.player and each.score is not None]
    if len(played) < _MIN_ROLLOUTS or played[0].judgement.weight <= 0:
        return
    passed = sum(bool(each.judgement.is_correct) for each in played)
    if passed / len(played) >= _SATURATED:
        message = f"already passes {passed} of {len(played)} rollouts: nothing is learned from it"
        yield _finding(name, Fault.SATURATED, message, played[0])


def _cannot_tell(name: str, observations: Sequence[Observation]) -> Iterator[AuditFinding]:
    judged = [each for each in observations if not each.judgement.cause]
    unscored = [each for each in judged if each.score is None]
    if judged and len(unscored) / len(judged) > _CANNOT_TELL_SHARE:
        message = f"cannot judge {len(unscored)} of {len(judged)} rollouts: "
        message += unscored[0].judgement.verdict.reason
        yield _finding(name, Fault.CANNOT_TELL, message, unscored[0])


def _duplicates(
    by_measure: Mapping[str, Sequence[Observation]], excluded: set[str]
) -> Iterator[AuditFinding]:
    """Find pairs of measures with equal scores on every shared rollout."""
    scores = {
        name: {each.rollout: each.score for each in observations if each.score is not None}
        for name, observations in by_measure.items()
        if name not in excluded and observations[0].judgement.weight > 0
    }
    for one, other in combinations(scores, 2):
        shared = [rollout for rollout in scores[one] if rollout in scores[other]]
        values = {scores[one][rollout] for rollout in shared}
        is_same = all(scores[one][rollout] == scores[other][rollout] for rollout in shared)
        if len(shared) >= _MIN_ROLLOUTS and len(values) > 1 and is_same:
            first = by_measure[one][0]
            message = f"gives the same scores as {other} on all {len(shared)} rollouts: the same "
            message += "thing counts twice"
            yield _finding(one, Fault.DUPLICATE, message, first)


def _is_often(part: int, whole: int) -> bool:
    return part >= min(2, whole) and whole > 0 and part / whole > _LUCK_SHARE


def _rewards(observations: Sequence[Observation]) -> dict[str, float]:
    """Return the reward of each rollout; a measure that could not tell counts as 0."""
    earned: dict[str, float] = defaultdict(float)
    weights: dict[str, float] = defaultdict(float)
    for observation in observations:
        earned[observation.rollout] += observation.judgement.weight * (observation.score or 0.0)
        weights[observation.rollout] += observation.judgement.weight
    return {rollout: earned[rollout] / weight for rollout, weight in weights.items() if weight}


def _differ(one: float | None, other: float | None) -> bool:
    """Whether two scores differ by more than the tolerance for fractional scores."""
    if one is None or other is None:
        return one is not other
    return abs(one - other) > _SCORE_TOLERANCE


def _finding(
    name: str, fault: Fault, message: str, example: Observation, *, is_grave: bool = True
) -> AuditFinding:
    return AuditFinding(name, fault, message, example.rollout, fault in GRAVE and is_grave)


def _answer_name(observation: Observation) -> str:
    return _BY_NAME[observation.player].says


def _score(score: float | None) -> str:
    return "no verdict" if score is None else f"{score:g}"
