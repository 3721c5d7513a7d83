"""What the planned run would take, from what was just measured, with an interval.

A step plays a batch and updates on it. Groups that teach nothing are replaced, in smaller
batches, which cost more than their share: what a batch costs is taken to grow in a straight line
from one group to a whole step, both of which were timed.

Time by the clock depends on what else the machine does. So CPU seconds are what is estimated, and
the clock follows from the share of the machine that was had while they were measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparring.proofs.learnability import LiveShare

_DRAWS = 2000
_MARGIN = 1.15  # lengths change while a model learns
_ALONE = 0.85  # of its cores is what a process gets out of them
_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Amount:
    value: float
    low: float
    high: float

    def times(self, factor: float) -> Amount:
        return Amount(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds, of the clock or of the CPU: a step's rollouts together (each time), one group
    alone, and the update."""

    batches: Sequence[float]
    group: float
    update: float


@dataclass(frozen=True, slots=True)
class Planned:
    """The run that is planned, per process where nothing else is said."""

    steps: int
    groups_per_step: int
    rollouts_per_group: int
    replacement_groups: int
    world_size: int
    validations: int
    validation_cases: int
    tokens_per_rollout: float
    live: LiveShare
    proof_rollouts: int = 0
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    seconds_per_step: Amount
    cpu_seconds_per_step: Amount
    hours: Amount
    sampled_tokens: Amount
    cost: Amount | None = None
    cores_had: float = 1.0
    hours_alone: float = 0.0
    proof_hours: float = 0.0


def estimate(
    clock: Measured, cpu: Measured, planned: Planned, *, price_per_hour: float | None = None
) -> Estimate:
    extra = _replacements(planned)
    cpu_per_step = _step(cpu, planned, extra)
    had = _cores_had(clock, cpu, planned.cores)
    per_step = cpu_per_step.times(1 / had)
    rollouts_a_batch = planned.groups_per_step * planned.rollouts_per_group
    per_rollout = statistics.mean(cpu.batches) / rollouts_a_batch / had
    validating = planned.validations * planned.validation_cases * per_rollout
    seconds = per_step.times(planned.steps)
    hours = Amount(*((part + validating) / 3600 for part in _parts(seconds)))
    groups = Amount(
        *(planned.groups_per_step + part for part in _parts(extra))
    )  # with those that are played in place of others
    rollouts = groups.times(planned.rollouts_per_group * planned.steps * planned.world_size)
    return Estimate(
        seconds_per_step=per_step,
        cpu_seconds_per_step=cpu_per_step,
        hours=hours,
        sampled_tokens=rollouts.times(planned.tokens_per_rollout),
        cost=None if price_per_hour is None else hours.times(price_per_hour),
        cores_had=had,
        hours_alone=hours.value * had / max(had, _ALONE * planned.cores),
        proof_hours=planned.proof_rollouts * per_rollout / 3600,
    )


def _cores_had(clock: Measured, cpu: Measured, cores: int) -> float:
    """How many cores' worth of time this process got, of those it could use. Beside a GPU, where
    the CPU mostly waits, this share turns CPU seconds back into those of the clock."""
    taken = sum(clock.batches) + clock.group + clock.update
    worked = sum(cpu.batches) + cpu.group + cpu.update
    return min(float(cores), max(_LEAST_SHARE, worked / max(taken, 1e-9)))


def _parts(amount: Amount) -> tuple[float, float, float]:
    return amount.value, amount.low, amount.high


def _replacements(planned: Planned) -> Amount:
    """Groups that are played in place of dead ones, in a step: round after round, until all
    groups teach or there are no spares left."""
    random = np.random.default_rng(0)
    live = planned.live

    def played(share: float) -> float:
        total = np.zeros(_DRAWS)
        dead = random.binomial(planned.groups_per_step, 1 - share, size=_DRAWS)
        spares = np.full(_DRAWS, planned.replacement_groups)
        for _ in range(planned.replacement_groups):
            tried = np.minimum(dead, spares)
            total += tried
            spares = spares - tried
            dead = dead - random.binomial(tried, share)
        return float(total.mean())

    return Amount(played(live.value), played(live.high), played(live.low))


def _step(measured: Measured, planned: Planned, extra: Amount) -> Amount:
    batch = statistics.mean(measured.batches)
    groups = planned.groups_per_step
    slope = max(0.0, (batch - measured.group) / max(1, groups - 1))
    fixed = max(0.0, batch - slope * groups)

    def with_extra(played: float) -> float:
        rounds = min(2.0, played)  # what is replaced is tried in a round or two
        return measured.update + batch + slope * played + fixed * rounds

    spread = statistics.stdev(measured.batches) if len(measured.batches) > 1 else 0.15 * batch
    margin = 2 * spread / max(1, len(measured.batches)) ** 0.5
    low = (with_extra(extra.low) - margin) / _MARGIN
    return Amount(
        with_extra(extra.value), max(0.0, low), (with_extra(extra.high) + margin) * _MARGIN
    )
