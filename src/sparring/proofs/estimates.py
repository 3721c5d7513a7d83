"""Estimates time, tokens and cost of a planned training, with intervals, from measured batches.

A step plays a batch and updates the weights. Dead groups are replaced in smaller batches, which
cost more per group. The estimate assumes that the cost of a batch grows linearly from one group to
a full step; both ends are measured.

Wall time depends on the load of the machine. The estimate therefore counts CPU seconds and
converts them to wall time by the share of the cores that the measured process got.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparring.contracts.summaries import Amount, CostEstimate, LiveShare

_DRAWS = 2000
_MARGIN = 1.15  # rollout lengths change during training
_IDLE_SHARE = 0.85  # share of its cores that a process gets on an idle machine
_MIN_CORES = 0.01
_MIN_SHARE = 1e-9  # of live groups: replacements are used up long before
_BUSY_CORES = 0.25  # below this, the process waits for other processes, tools or a GPU


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall or CPU seconds of each full batch of a step, of one group alone, and of one update."""

    batches: Sequence[float]
    group: float
    update: float


@dataclass(frozen=True, slots=True)
class Planned:
    """The planned training. Groups and `validation_cases` are those of one process."""

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


def estimate(
    clock: Measured, cpu: Measured, planned: Planned, *, price_per_hour: float | None = None
) -> CostEstimate:
    """Estimate the planned training from measured wall (`clock`) and CPU (`cpu`) seconds."""
    extra = _replacements(planned)
    cpu_per_step = _step(cpu, planned, extra)
    cores = _cores_had(clock, cpu, planned.cores)
    per_step = cpu_per_step.times(1 / cores)
    rollouts_per_batch = planned.groups_per_step * planned.rollouts_per_group
    per_rollout = statistics.mean(cpu.batches) / rollouts_per_batch / cores
    validation_seconds = planned.validations * planned.validation_cases * per_rollout
    seconds = per_step.times(planned.steps)
    hours = Amount(*((part + validation_seconds) / 3600 for part in _parts(seconds)))
    alone = hours.value * cores / max(cores, _IDLE_SHARE * planned.cores)
    groups = Amount(*(planned.groups_per_step + part for part in _parts(extra)))
    rollouts = groups.times(planned.rollouts_per_group * planned.steps * planned.world_size)
    return CostEstimate(
        seconds_per_step=per_step,
        cpu_seconds_per_step=cpu_per_step,
        hours=hours,
        sampled_tokens=rollouts.times(planned.tokens_per_rollout),
        cost=None if price_per_hour is None else hours.times(price_per_hour),
        cores_had=cores,
        hours_alone=alone if cores >= _BUSY_CORES else 0.0,
        proof_hours=planned.proof_rollouts * per_rollout / 3600,
    )


def _cores_had(clock: Measured, cpu: Measured, cores: int) -> float:
    """Return the number of cores that the process used on average: CPU seconds per wall second. On
    a GPU, where the CPU mostly waits, the number is far below one."""
    wall_seconds = sum(clock.batches) + clock.group + clock.update
    cpu_seconds = sum(cpu.batches) + cpu.group + cpu.update
    return min(float(cores), max(_MIN_CORES, cpu_seconds / max(wall_seconds, 1e-9)))


def _parts(amount: Amount) -> tuple[float, float, float]:
    return amount.value, amount.low, amount.high


def _replacements(planned: Planned) -> Amount:
    """Simulate the number of replacement groups in one step: dead groups are replaced until all
    groups are live or the replacements are used up."""
    random = np.random.default_rng(0)
    live = planned.live

    def played(share: float) -> float:
        dead = random.binomial(planned.groups_per_step, 1 - share, size=_DRAWS)
        failed = random.negative_binomial(np.maximum(dead, 1), max(share, _MIN_SHARE))
        needed = np.where(dead > 0, dead + failed, 0)
        return float(np.minimum(needed, planned.replacement_groups).mean())

    return Amount(played(live.value), played(live.high), played(live.low))


def _step(measured: Measured, planned: Planned, extra: Amount) -> Amount:
    batch = statistics.mean(measured.batches)
    groups = planned.groups_per_step
    slope = max(0.0, (batch - measured.group) / max(1, groups - 1))
    fixed = max(0.0, batch - slope * groups)

    def with_extra(played: float) -> float:
        rounds = min(2.0, played)  # replacements are usually played in one or two rounds
        return measured.update + batch + slope * played + fixed * rounds

    spread = statistics.stdev(measured.batches) if len(measured.batches) > 1 else 0.15 * batch
    margin = 2 * spread / max(1, len(measured.batches)) ** 0.5
    low = (with_extra(extra.low) - margin) / _MARGIN
    return Amount(
        with_extra(extra.value), max(0.0, low), (with_extra(extra.high) + margin) * _MARGIN
    )
