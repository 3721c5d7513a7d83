"""Estimates the cost of the checked training, from the batches played and the steps run."""

from __future__ import annotations

import math
import resource
from collections.abc import Sequence
from dataclasses import dataclass

from sparring.contracts.cases import Split
from sparring.contracts.kinds import CheckSpec, ProveSpec
from sparring.contracts.summaries import LiveShare, PlanEstimate
from sparring.jobs.check.play import CheckPlay
from sparring.learning.batches import BatchPlan
from sparring.learning.dry_run import DryRun
from sparring.learning.engine import engine_named
from sparring.proofs.estimates import Measured, Planned, estimate
from sparring.suites import Suite

_PROOF_ROLLOUTS = ProveSpec.model_fields["rollouts"].default


@dataclass(frozen=True, slots=True)
class SplitSizes:
    """The number of cases in each split."""

    training: int
    validation: int
    held_out: int

    @classmethod
    def of(cls, suite: Suite) -> SplitSizes:
        """Return the sizes of a suite's splits."""
        splits = (Split.TRAINING, Split.VALIDATION, Split.HELD_OUT)
        return cls(*(suite.size(split) for split in splits))


def training_cost(
    spec: CheckSpec,
    sizes: SplitSizes,
    played: CheckPlay,
    dry: DryRun,
    live: Sequence[LiveShare],
) -> PlanEstimate | None:
    """Return the estimate for the summary; None if no batch or no step was completed."""
    if played.measured is None or not live or not dry.done:
        return None
    step = dry.done[min(len(dry.done), spec.dry_steps) - 1]
    clock, cpu = (
        Measured(each.batches, each.group, update)
        for each, update in zip(played.measured, (step.update, step.update_cpu), strict=True)
    )
    plan = engine_named().plan_of(spec.settings, sizes.training, spec.processes * spec.nodes)
    planned = _planned(spec, plan, sizes, played, live[0])
    price = None if spec.price_per_hour is None else spec.price_per_hour * spec.nodes
    cost = estimate(clock, cpu, planned, price_per_hour=price)
    device, used = memory_used()
    return PlanEstimate(
        **dict(cost),
        steps=plan.steps,
        plan=str(plan),
        memory=used,
        memory_of=device,
        parity=dry.parity,
        basis=f"{len(clock.batches)} batches played and {len(dry.done)} steps discarded, on this "
        "machine",
    )


def memory_used() -> tuple[str, int]:
    """Return the kind of memory, and this process's peak use in bytes."""
    import torch

    if torch.cuda.is_available():
        return "GPU", int(torch.cuda.max_memory_allocated())
    return "main memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _planned(
    spec: CheckSpec, plan: BatchPlan, sizes: SplitSizes, played: CheckPlay, live: LiveShare
) -> Planned:
    import torch

    world_size = spec.processes * spec.nodes
    replacements = spec.settings.replacement_groups
    if replacements is None:
        replacements = plan.cases_per_step
    spare = sizes.training // world_size - plan.cases_per_step  # cases that the step does not play
    validated = min(spec.settings.most_validation_cases, sizes.validation)
    sampled = sum(each.tokens.sampled for each in played.learner)
    return Planned(
        steps=plan.steps,
        groups_per_step=plan.cases_per_step,
        rollouts_per_group=plan.rollouts_per_case,
        replacement_groups=max(0, min(replacements, spare)),
        world_size=world_size,
        validations=plan.steps // plan.save_steps + 2,
        validation_cases=math.ceil(validated / world_size),  # of each process
        tokens_per_rollout=sampled / len(played.learner),
        live=live,
        proof_rollouts=2 * _PROOF_ROLLOUTS * sizes.held_out,
        cores=torch.get_num_threads(),
    )
