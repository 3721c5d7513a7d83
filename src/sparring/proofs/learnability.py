"""Whether an environment can be learned from, as far as a few rollouts tell.

GRPO compares the rollouts of one case with one another, so what counts is how often they will
differ: the share of live groups. Each case's rewards are drawn from a distribution that is known
up to a posterior (Dirichlet; for passed and failed alone, Beta), and the cases played are a
sample of all cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sparring.contracts.rollouts import Rollout
from sparring.proofs.null_players import question_of

_DRAWS = 4000
_PRIOR = 0.5  # rollouts per case, shared out as all rollouts together are
_UNSEEN = 0.5  # cases of a kind that was not played
_STEPS_AHEAD = 5
_QUESTION = 80  # letters of it
_KINDS = 24  # rewards that are told apart; all others are taken to differ
SIZES = (2, 4, 8, 16, 32)

Outcomes = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class CaseBand:
    """One case: of how many scored rollouts it passed how many, and between what its pass rate
    lies (95 %, Beta)."""

    case: str
    question: str
    rollouts: int
    passed: int
    low: float
    high: float
    reward: float | None


@dataclass(frozen=True, slots=True)
class LiveShare:
    """Expected share of groups of this size that teach something. The interval is for what the
    first five steps will show."""

    group_size: int
    value: float
    low: float
    high: float


def outcomes_of(
    rollouts: Sequence[Rollout], *, masks_truncated: bool
) -> dict[str, list[float | None]]:
    """Rewards by case as training would see them: none where a rollout is left out."""
    found: dict[str, list[float | None]] = {}
    for rollout in rollouts:
        left_out = rollout.is_truncated and masks_truncated
        found.setdefault(rollout.case.id, []).append(None if left_out else rollout.reward)
    return found


def bands(rollouts: Sequence[Rollout]) -> list[CaseBand]:
    """Each case's pass band, the hardest first."""
    by_case: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        by_case.setdefault(rollout.case.id, []).append(rollout)
    made = []
    for case, played in by_case.items():
        told = [each for each in played if each.reward is not None]
        scored = [each.reward for each in told if each.reward is not None]
        passed = sum(map(is_passed, told))
        posterior = stats.beta(0.5 + passed, 0.5 + len(told) - passed)
        low, high = posterior.ppf(0.025), posterior.ppf(0.975)
        mean = sum(scored) / len(scored) if scored else None
        question = " ".join(question_of(played[0].case).split())[:_QUESTION]
        made.append(CaseBand(case, question, len(told), passed, float(low), float(high), mean))
    return sorted(made, key=lambda each: (each.passed / max(1, each.rollouts), each.case))


def is_passed(rollout: Rollout) -> bool:
    """Whether every rewarded measure is content."""
    rewarded = [each for each in rollout.judgements if each.weight > 0]
    if not rewarded:
        return rollout.reward is not None and rollout.reward >= 1
    return all(each.is_correct for each in rewarded)


def live_shares(
    outcomes: Outcomes, *, group_size: int, groups_per_step: int, seed: int = 0
) -> list[LiveShare]:
    """At the planned size first, then at others."""
    sizes = [group_size, *(size for size in SIZES if size != group_size)]
    random = np.random.default_rng(seed)
    chances = _posterior(outcomes, sizes, random)
    weights = random.dirichlet([1.0] * len(outcomes) + [_UNSEEN], size=_DRAWS)
    found = []
    for number, size in enumerate(sizes):
        share = (weights * chances[number]).sum(axis=1).clip(0, 1)
        groups = groups_per_step * _STEPS_AHEAD
        seen = random.binomial(groups, share) / groups
        low, high = np.quantile(seen, [0.025, 0.975])
        found.append(LiveShare(size, float(share.mean()), float(low), float(high)))
    return found


def _posterior(
    outcomes: Outcomes, sizes: Sequence[int], random: np.random.Generator
) -> NDArray[np.float64]:
    """Chances of a live group: [size, draw, case], the last case being one that was not seen."""
    pooled = Counter(reward for rewards in outcomes.values() for reward in rewards)
    usual = [value for value, count in pooled.most_common(_KINDS) if count > 1]
    values = sorted({0.0, 1.0} | {value for value in usual if value is not None})
    kinds: list[float | None] = [*values, None]
    common = np.array([pooled[kind] + (0.5 if kind in (0.0, 1.0) else 1e-3) for kind in kinds])
    common = np.insert(common, -1, 1e-3)
    prior = _PRIOR * common / common.sum()
    chances = np.empty((len(sizes), _DRAWS, len(outcomes) + 1))
    for place, rewards in enumerate(outcomes.values()):
        counts = Counter(rewards)
        seen = [counts[kind] for kind in kinds]
        seen.insert(-1, len(rewards) - sum(seen))  # rewards that hardly any other rollout has
        drawn = random.dirichlet(prior + seen + 1e-9, size=_DRAWS)
        for number, size in enumerate(sizes):
            chances[number, :, place] = live_chance(drawn, size)
    unknown = random.beta(0.5, 0.5, size=_DRAWS)
    none = np.zeros(_DRAWS)
    either = np.stack([unknown, 1 - unknown, none, none], axis=1)
    for number, size in enumerate(sizes):
        chances[number, :, -1] = live_chance(either, size)
    return chances


def live_chance(shares: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """That not all scored rollouts of a group agree. The last column is the share of rollouts
    without a reward: dead are groups of one reward and none besides, and of none at all. The one
    before it is that of rewards which are all different, of which one alone agrees with itself."""
    none, unique = shares[..., -1], shares[..., -2]
    agreeing = ((shares[..., :-2] + none[..., None]) ** size - none[..., None] ** size).sum(axis=-1)
    agreeing = agreeing + size * unique * none ** (size - 1)
    live: NDArray[np.float64] = np.clip(1 - agreeing - none**size, 0.0, 1.0)
    return live
