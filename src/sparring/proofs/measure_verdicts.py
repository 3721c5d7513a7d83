"""Judges, for each measure with a weight above 0, whether training can improve it.

A reward that differs between rollouts is not enough: if one measure never passes and another
passes by luck, training improves only the second.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import MeasureVerdict, Movement
from sparring.contracts.verdicts import Judgement
from sparring.proofs.eval_summary import Reasons
from sparring.proofs.learnability import live_shares

_MIN_SCORED = 8
_ENOUGH_LIVE = 0.1  # below this share of live groups, a measure gives hardly any gradient
_RARELY = 0.1  # below this share of rollouts, a measure hardly ever passes
_NEARLY_ALL = 0.95
_HALF = 0.5


def judge_measures(
    rollouts: Sequence[Rollout], *, group_size: int, masks_truncated: bool
) -> list[MeasureVerdict]:
    """Return the verdict on each measure whose weight is above 0, weakest first."""
    rewarded = dict.fromkeys(
        each.measure for rollout in rollouts for each in rollout.judgements if each.weight > 0
    )
    found = [_judge(name, rollouts, group_size, masks_truncated) for name in rewarded]
    return sorted(found, key=lambda each: list(Movement).index(each.movement))


def describe(verdict: MeasureVerdict) -> str:
    """Return a clause that states how often the measure passes, or why training cannot tell."""
    name, passed, scored = verdict.name, verdict.passed, verdict.scored
    share = f"{passed} of {scored} rollouts"
    if verdict.movement is Movement.CAN_BE_LEARNED:
        return f"{name} passes {share}"
    if verdict.movement is Movement.CANNOT_TELL:
        return f"{name} could judge only {scored} rollouts"
    if verdict.movement is Movement.CONSTANT:
        return f"{name} gives every rollout the same score"
    if not passed:
        return f"{name} never passes"
    if passed < _RARELY * scored:
        return f"{name} hardly ever passes ({share})"
    if passed >= _NEARLY_ALL * scored:
        return f"{name} already passes ({share})"
    return f"{name} passes {share}, but hardly any case both passes and fails"


def _judge(
    name: str, rollouts: Sequence[Rollout], group_size: int, masks_truncated: bool
) -> MeasureVerdict:
    pairs = [
        (rollout, each)
        for rollout in rollouts
        for each in rollout.judgements
        if each.measure == name
    ]
    judged = [each for _, each in pairs if each.verdict.score is not None]
    passed = sum(bool(each.is_correct) for each in judged)
    live = _live_share(pairs, group_size, masks_truncated)
    reasons = Reasons()
    for each in judged:
        if not each.is_correct:
            reasons.add(each.verdict.reason)
    why = next((each.reason for each in reasons.most_common()), "")
    movement = _movement(judged, passed, live, len(pairs))
    return MeasureVerdict(name, movement, len(judged), passed, live, why)


def _movement(judged: Sequence[Judgement], passed: int, live: float, played: int) -> Movement:
    if len(judged) < min(_MIN_SCORED, played) or len(judged) < _HALF * played:
        return Movement.CANNOT_TELL
    scores = {each.verdict.score or 0.0 for each in judged}
    if passed >= _NEARLY_ALL * len(judged):
        return Movement.ALREADY_PASSED
    if len(scores) == 1 and 0 < min(scores) < 1:
        return Movement.CONSTANT
    if live < _ENOUGH_LIVE and passed < _HALF * len(judged):
        return Movement.NEVER_PASSES
    if live < _ENOUGH_LIVE:
        return Movement.ALREADY_PASSED
    return Movement.CAN_BE_LEARNED


def _live_share(
    pairs: Sequence[tuple[Rollout, Judgement]], group_size: int, masks_truncated: bool
) -> float:
    outcomes: dict[str, list[float | None]] = {}
    for rollout, judgement in pairs:
        is_masked = rollout.is_truncated and masks_truncated
        score = None if is_masked else judgement.verdict.score
        outcomes.setdefault(rollout.case.id, []).append(score)
    scores = {score for scores in outcomes.values() for score in scores if score is not None}
    if len(scores) < 2:
        return 0.0
    return live_shares(outcomes, group_size=group_size, groups_per_step=1)[0].value
