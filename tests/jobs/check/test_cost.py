"""The cost of a checked training is estimated from what was played and tried."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sparring.contracts.kinds import CheckSpec
from sparring.contracts.summaries import LiveShare
from sparring.contracts.training import TrainSettings
from sparring.jobs.check.cost import SplitSizes, memory_used, training_cost
from sparring.learning.dry_run import DryRun, DryStep
from sparring.proofs.estimates import Measured
from sparring.suites import Suite

SIZES = SplitSizes(training=40, validation=10, held_out=20)
LIVE = [LiveShare(4, 0.5, 0.3, 0.7)]
SLOW_STEP = DryStep(update=60.0, update_cpu=60.0, whole=70.0)
STEP = DryStep(update=6.0, update_cpu=8.0, whole=16.0)


def play(**given: Any) -> Any:
    rollout = SimpleNamespace(tokens=SimpleNamespace(sampled=50))
    measured = (Measured([10.0, 12.0], 3.0, 0.0), Measured([14.0, 15.0], 4.0, 0.0))
    return SimpleNamespace(**{"learner": [rollout] * 8, "measured": measured, **given})


def spec(**settings: Any) -> CheckSpec:
    values = {"cases_per_batch": 2, "gradient_accumulation_steps": 1, "num_generations": 4}
    return CheckSpec(target="x.py:X", settings=TrainSettings(**{**values, **settings}), dry_steps=2)


def cost(played: Any = None, steps: int = 2, live: Any = LIVE, **settings: Any) -> Any:
    dry = DryRun(done=[SLOW_STEP, STEP, SLOW_STEP][:steps])
    return training_cost(spec(**settings), SIZES, played or play(), dry, live)


def test_the_last_of_the_steps_counts_and_not_the_one_with_stretched_rows() -> None:
    found = cost(steps=3, max_steps=10)
    assert found.steps == 10
    assert found.seconds_per_step.value < 60
    assert found.hours.low <= found.hours.value <= found.hours.high
    assert found.basis == "2 batches played and 3 steps discarded, on this machine"
    assert found.memory > 0


def test_a_longer_training_costs_more_in_proportion() -> None:
    short, long = cost(max_steps=10), cost(max_steps=100)
    assert long.hours.value == pytest.approx(10 * short.hours.value, rel=0.35)


def test_processes_share_the_validation() -> None:
    def hours(processes: int) -> float:
        given = spec(max_steps=2, validation_cases=10).model_copy(update={"processes": processes})
        found = training_cost(given, SIZES, play(), DryRun(done=[STEP]), LIVE)
        return float(found.hours.value)

    assert hours(2) < hours(1)


def test_validation_and_proof_are_part_of_the_cost() -> None:
    without, with_them = (
        training_cost(
            spec(max_steps=4, validation_cases=n), sizes, play(), DryRun(done=[STEP]), LIVE
        )
        for n, sizes in ((0, SplitSizes(40, 10, 0)), (10, SIZES))
    )
    assert with_them is not None
    assert without is not None
    assert with_them.hours.value > without.hours.value
    assert with_them.proof_hours > without.proof_hours == 0


@pytest.mark.parametrize(
    "missing", [{"played": play(measured=None)}, {"steps": 0}, {"live": []}], ids=str
)
def test_without_a_batch_a_step_or_a_verdict_there_is_no_estimate(missing: dict[str, Any]) -> None:
    assert cost(**missing) is None


def test_the_sizes_of_splits_are_counted() -> None:
    splits = ["training"] * 3 + ["validation"] * 2 + ["held-out"]
    records = [{"input": f"q{n}", "split": split} for n, split in enumerate(splits)]
    assert SplitSizes.of(Suite.from_records(records)) == SplitSizes(3, 2, 1)


@pytest.mark.parametrize(
    ("find", "kind", "least"),
    [(lambda: False, "main memory", 10 << 20), (lambda: True, "GPU", 5)],
)
def test_memory_is_that_of_the_gpu_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, find: Callable[[], bool], kind: str, least: int
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", find)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5)
    where, used = memory_used()
    assert where == kind
    assert used >= least
