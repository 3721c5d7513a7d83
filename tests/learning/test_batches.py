from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import SettingError
from sparring.contracts.training import TrainSettings
from sparring.learning.batches import resolve_batches

small = st.integers(1, 9)


@given(
    cases_per_batch=small,
    passes=small,
    group=st.integers(2, 9),
    rows=st.none() | st.integers(1, 40),
    world_size=st.integers(1, 4),
    cases=st.integers(4, 200),
    max_steps=st.none() | st.integers(1, 50),
    iterations=st.integers(1, 3),
)
def test_every_process_holds_whole_groups_and_passes_divide_them(
    cases_per_batch, passes, group, rows, world_size, cases, max_steps, iterations
):
    settings = TrainSettings(
        cases_per_batch=cases_per_batch,
        gradient_accumulation_steps=passes,
        num_generations=group,
        per_device_train_batch_size=rows,
        max_steps=max_steps,
    )
    plan = resolve_batches(
        settings, training_cases=cases, world_size=world_size, num_iterations=iterations
    )
    assert plan.rows_per_pass * plan.passes_per_step == plan.cases_per_step * group
    assert plan.cases_per_step * world_size <= cases
    assert plan.cases_per_step <= cases_per_batch * passes
    assert rows is None or plan.rows_per_pass <= rows
    assert plan.steps >= (max_steps or 1)
    assert plan.steps % plan.boundary == 0
    assert plan.save_steps % plan.boundary == 0


def test_the_defaults_are_two_cases_twice_four_rollouts_each():
    plan = resolve_batches(TrainSettings(), training_cases=100)
    assert str(plan) == "25 steps of 4 cases × 4 rollouts = 16 rollouts a step"
    assert not plan.notes


def test_rows_that_do_not_divide_are_adjusted_with_a_note():
    plan = resolve_batches(TrainSettings(per_device_train_batch_size=5), training_cases=100)
    assert (plan.rows_per_pass, plan.passes_per_step) == (4, 4)
    assert "5 rows per pass do not divide the 16 rows of a step" in plan.notes[0]


def test_a_step_takes_no_more_cases_than_there_are_and_says_so():
    plan = resolve_batches(TrainSettings(), training_cases=3)
    assert plan.cases_per_step == 3
    assert "more than the 3 training cases" in plan.notes[0]


def test_more_processes_than_cases_are_refused():
    with pytest.raises(SettingError, match="cannot be shared by 8 processes"):
        resolve_batches(TrainSettings(), training_cases=4, world_size=8)


def test_a_generation_that_ends_inside_a_step_is_refused():
    with pytest.raises(SettingError, match="multiple"):
        resolve_batches(TrainSettings(), training_cases=100, steps_per_generation=3)


def test_checkpoints_are_moved_to_the_boundaries_of_generations():
    settings = TrainSettings(max_steps=10, save_steps=3)
    plan = resolve_batches(settings, training_cases=100, num_iterations=4)
    assert (plan.boundary, plan.steps, plan.save_steps) == (4, 12, 4)
    assert len(plan.notes) == 2
