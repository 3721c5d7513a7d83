"""Estimates from a few rollouts what training can improve: the share of live groups, and a verdict
on each measure with a weight.

GRPO compares the rollouts of one case with each other, so it learns only from live groups: those
whose rewards differ. Each case's rewards follow a distribution with a Dirichlet posterior (Beta for
pass/fail), and the played cases are a sample of all cases.

A reward that differs between rollouts is not enough: if one measure never passes and another
passes by luck, training improves only the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sparring.contracts.cases import question_of
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import CaseBand, LiveShare, MeasureVerdict, Movement
from sparring.contracts.verdicts import Judgement
from sparring.proofs.eval_summary import Reasons

_DRAWS = 4000
_PRIOR = 0.5  # prior rollouts per case, distributed like the frequent rewards of all cases
_UNSEEN = 0.5  # prior weight of a case unlike the played ones
_STEPS_AHEAD = 5
_QUESTION_LENGTH = 80
_MAX_REWARDS = 24  # distinct rewards that are modelled; rarer ones count as unique
SIZES = (2, 4, 8, 16, 32)

_MIN_SCORED = 8
_ENOUGH_LIVE = 0.1  # below this share of live groups, a measure gives hardly any gradient
_RARELY = 0.1  # below this share of rollouts, a measure hardly ever passes
_NEARLY_ALL = 0.95
_HALF = 0.5

Outcomes = Mapping[str, Sequence[float | None]]


def outcomes_of(
    rollouts: Sequence[Rollout], *, masks_truncated: bool
) -> dict[str, list[float | None]]:
    """Return rewards by case; None for a rollout that training masks or that is unscored."""
    rewards: dict[str, list[float | None]] = {}
    for rollout in rollouts:
        is_masked = rollout.is_truncated and masks_truncated
        rewards.setdefault(rollout.case.id, []).append(None if is_masked else rollout.reward)
    return rewards


def bands(rollouts: Sequence[Rollout]) -> list[CaseBand]:
    """Return the band of each case, lowest pass rate first."""
    by_case: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        by_case.setdefault(rollout.case.id, []).append(rollout)
    found = []
    for case, played in by_case.items():
        scored = [each for each in played if each.reward is not None]
        rewards = [each.reward for each in scored if each.reward is not None]
        passed = sum(map(is_passed, scored))
        posterior = stats.beta(0.5 + passed, 0.5 + len(scored) - passed)
        low, high = posterior.ppf(0.025), posterior.ppf(0.975)
        mean = sum(rewards) / len(rewards) if rewards else None
        question = " ".join(question_of(played[0].case).split())[:_QUESTION_LENGTH]
        found.append(CaseBand(case, question, len(scored), passed, float(low), float(high), mean))
    return sorted(found, key=lambda each: (each.passed / max(1, each.rollouts), each.case))


def is_passed(rollout: Rollout) -> bool:
    """Whether every rewarded measure passes; if there is none, whether the reward is 1 or more."""
    rewarded = [each for each in rollout.judgements if each.weight > 0]
    if not rewarded:
        return rollout.reward is not None and rollout.reward >= 1
    return all(each.is_correct for each in rewarded)


def has_differing_group(rollouts: Sequence[Rollout]) -> bool:
    """Whether the rollouts of at least one case have different rewards."""
    rewards: dict[str, set[float]] = {}
    for each in rollouts:
        if each.reward is not None:
            rewards.setdefault(each.case.id, set()).add(each.reward)
    return any(len(each) > 1 for each in rewards.values())


def live_shares(
    outcomes: Outcomes, *, group_size: int, groups_per_step: int, seed: int = 0
) -> list[LiveShare]:
    """Return the share of live groups at the planned group size, then at the other `SIZES`."""
    sizes = [group_size, *(size for size in SIZES if size != group_size)]
    random = np.random.default_rng(seed)
    chances = _posterior(outcomes, sizes, random)
    weights = random.dirichlet([1.0] * len(outcomes) + [_UNSEEN], size=_DRAWS)
    found = []
    for number, size in enumerate(sizes):
        share = (weights * chances[number]).sum(axis=1).clip(0, 1)
        groups = groups_per_step * _STEPS_AHEAD
        simulated = random.binomial(groups, share) / groups
        low, high = np.quantile(simulated, [0.025, 0.975])
        found.append(LiveShare(size, float(share.mean()), float(low), float(high)))
    return found


def _posterior(
    outcomes: Outcomes, sizes: Sequence[int], random: np.random.Generator
) -> NDArray[np.float64]:
    """Return chances of a live group by [size, draw, case]; the last case is an unseen one."""
    pooled = Counter(reward for rewards in outcomes.values() for reward in rewards)
    frequent = [value for value, count in pooled.most_common(_MAX_REWARDS) if count > 1]
    values = sorted({0.0, 1.0} | {value for value in frequent if value is not None})
    columns: list[float | None] = [*values, None]
    common = np.array([pooled[each] + (0.5 if each in (0.0, 1.0) else 1e-3) for each in columns])
    common = np.insert(common, -1, 1e-3)
    prior = _PRIOR * common / common.sum()
    chances = np.empty((len(sizes), _DRAWS, len(outcomes) + 1))
    for position, rewards in enumerate(outcomes.values()):
        by_reward = Counter(rewards)
        counts = [by_reward[each] for each in columns]
        counts.insert(-1, len(rewards) - sum(counts))  # rewards too rare for a column
        drawn = random.dirichlet(prior + counts + 1e-9, size=_DRAWS)
        for number, size in enumerate(sizes):
            chances[number, :, position] = live_chance(drawn, size)
    unseen = random.beta(0.5, 0.5, size=_DRAWS)
    none = np.zeros(_DRAWS)
    passed_or_failed = np.stack([unseen, 1 - unseen, none, none], axis=1)
    for number, size in enumerate(sizes):
        chances[number, :, -1] = live_chance(passed_or_failed, size)
    return chances


def live_chance(shares: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the chance that the scored rollouts of a group do not all agree.

    The last column of `shares` is the share of rollouts without a reward, the second to last the
    share of rollouts whose rewards are unique. A group is dead if all its scored rollouts have the
    same reward, or if fewer than two are scored.
    """
    none, unique = shares[..., -1], shares[..., -2]
    agreeing = ((shares[..., :-2] + none[..., None]) ** size - none[..., None] ** size).sum(axis=-1)
    agreeing = agreeing + size * unique * none ** (size - 1)
    live: NDArray[np.float64] = np.clip(1 - agreeing - none**size, 0.0, 1.0)
    return live


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
