"""An estimate grows with what is planned, and its interval holds it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.summaries import Amount, CostEstimate, LiveShare
from sparring.proofs.estimates import Measured, Planned, estimate

ALL_LIVE, NONE_LIVE = LiveShare(4, 1.0, 1.0, 1.0), LiveShare(4, 0.0, 0.0, 0.0)
PLANNED = Planned(
    steps=100,
    groups_per_step=4,
    rollouts_per_group=4,
    replacement_groups=4,
    world_size=1,
    validations=0,
    validation_cases=0,
    tokens_per_rollout=50.0,
    live=ALL_LIVE,
)
SECONDS = Measured([8.0, 8.0], group=2.0, update=4.0)


def estimated(
    planned: Planned = PLANNED, seconds: Measured = SECONDS, **how: float
) -> CostEstimate:
    return estimate(seconds, seconds, planned, **how)


def test_where_every_group_is_live_a_step_is_its_batch_and_its_update() -> None:
    found = estimated()
    assert found.seconds_per_step.value == pytest.approx(12.0)
    assert found.hours.value == pytest.approx(100 * 12 / 3600)
    assert found.sampled_tokens == Amount(80_000.0, 80_000.0, 80_000.0)
    assert found.cost is None


def test_where_no_group_is_live_every_replacement_is_played() -> None:
    found = estimated(replace(PLANNED, live=NONE_LIVE))
    assert found.sampled_tokens.value == 160_000.0
    assert found.seconds_per_step.value == pytest.approx(12.0 + 8.0)
    without = estimated(replace(PLANNED, live=NONE_LIVE, replacement_groups=0))
    assert without.seconds_per_step == estimated().seconds_per_step


def test_replacements_end_with_the_last_dead_group_however_many_are_allowed() -> None:
    half = LiveShare(4, 0.5, 0.5, 0.5)
    found = estimated(replace(PLANNED, live=half, replacement_groups=10**9))
    # Two of four groups are dead, and each takes two replacements on average.
    assert found.sampled_tokens.value == pytest.approx(160_000.0, rel=0.05)


@settings(max_examples=15)
@given(
    st.lists(st.floats(0.5, 20), min_size=1, max_size=6),
    st.floats(0.1, 5),
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)).map(sorted),
)
def test_each_interval_holds_its_value(
    batches: list[float], group: float, live: list[float]
) -> None:
    planned = replace(PLANNED, live=LiveShare(4, live[1], live[0], live[2]))
    found = estimated(planned, Measured(batches, group, 1.0))
    for amount in (found.seconds_per_step, found.hours, found.sampled_tokens):
        assert 0 <= amount.low <= amount.value * 1.02  # replacements are simulated
        assert amount.value <= amount.high * 1.02


def test_a_price_makes_the_hours_a_cost() -> None:
    found = estimated(price_per_hour=2.5)
    assert found.cost == found.hours.times(2.5)


def test_processes_multiply_tokens_and_not_hours() -> None:
    two = estimated(replace(PLANNED, world_size=2))
    assert two.sampled_tokens.value == 2 * estimated().sampled_tokens.value
    assert two.hours == estimated().hours


def test_validation_and_the_proof_take_the_time_of_their_rollouts() -> None:
    planned = replace(PLANNED, validations=10, validation_cases=64, proof_rollouts=7200)
    found = estimated(planned)
    per_rollout = 8.0 / 16
    assert found.hours.value - estimated().hours.value == pytest.approx(640 * per_rollout / 3600)
    assert found.proof_hours == pytest.approx(2 * per_rollout)


def test_a_process_that_had_half_a_core_is_faster_alone() -> None:
    clock = Measured([16.0, 16.0], group=4.0, update=8.0)
    found = estimate(clock, SECONDS, replace(PLANNED, cores=1))
    assert found.cores_had == pytest.approx(0.5)
    assert found.seconds_per_step.value == pytest.approx(24.0)
    assert found.hours_alone == pytest.approx(found.hours.value * 0.5 / 0.85)


def test_a_process_that_waits_for_its_agents_says_nothing_about_an_idle_machine() -> None:
    clock = Measured([80.0, 80.0], group=20.0, update=40.0)
    found = estimate(clock, SECONDS, replace(PLANNED, cores=1))
    assert found.cores_had == pytest.approx(0.1)
    assert found.hours.value > 0
    assert found.hours_alone == 0.0


def test_no_process_has_more_than_its_cores() -> None:
    clock = Measured([1.0], group=1.0, update=1.0)
    found = estimate(clock, Measured([8.0], group=8.0, update=8.0), replace(PLANNED, cores=2))
    assert found.cores_had == 2.0
    assert found.hours_alone == pytest.approx(found.hours.value)


def test_batches_that_vary_widen_the_interval() -> None:
    steady = estimated(seconds=Measured([8.0, 8.0, 8.0], 2.0, 4.0)).seconds_per_step
    varied = estimated(seconds=Measured([4.0, 8.0, 12.0], 2.0, 4.0)).seconds_per_step
    assert varied.value == pytest.approx(steady.value)
    assert varied.high - varied.low > steady.high - steady.low
