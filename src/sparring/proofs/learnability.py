"""Estimates the share of live groups of an environment from a few rollouts.

GRPO compares the rollouts of one case with each other, so it learns only from live groups: those
whose rewards differ. Each case's rewards follow a distribution with a Dirichlet posterior (Beta for
pass/fail), and the played cases are a sample of all cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sparring.contracts.cases import question_of
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import CaseBand, LiveShare

_DRAWS = 4000
_PRIOR = 0.5  # prior rollouts per case, distributed like the frequent rewards of all cases
_UNSEEN = 0.5  # prior weight of a case unlike the played ones
_STEPS_AHEAD = 5
_QUESTION_LENGTH = 80
_MAX_REWARDS = 24  # distinct rewards that are modelled; rarer ones count as unique
SIZES = (2, 4, 8, 16, 32)

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
