"""Each guard fires on a made-up run that deserves it, and stays quiet on a healthy one."""

from __future__ import annotations

import math

import pytest

from sparring.contracts.errors import GuardStop
from sparring.contracts.training import Guards
from sparring.learning.guards import GuardMonitor

HEALTHY = {
    "loss": 0.1, "entropy": 0.4, "call_rate": 0.6, "teaching_groups": 0.5, "truncated": 0.1,
    "groups": 4, "dead/solved": 1,
}  # fmt: skip
SICK = {
    "no_tool_call": {"call_rate": 0.0},
    "dead_groups": {"teaching_groups": 0.0, "dead/failed": 3},
    "entropy": {"entropy": 1e-5},
    "truncated": {"truncated": 1.0},
    "not_finite": {"loss": math.nan},
}

SOLVED = {"teaching_groups": 0.0, "dead/solved": 4}


def watch(**guards):
    warnings = []
    return GuardMonitor(Guards(**guards), warn=warnings.append), warnings


def test_a_healthy_run_is_left_alone():
    looking, warnings = watch()
    for step in range(1, 200):
        looking.look(step, HEALTHY)
    assert warnings == []


@pytest.mark.parametrize("name", SICK)
def test_a_run_that_cannot_get_anywhere_is_stopped_with_cause_and_step(name):
    looking, _ = watch()
    needed = getattr(Guards(), name).steps
    for step in range(1, needed):
        looking.look(step, {**HEALTHY, **SICK[name]})
    with pytest.raises(GuardStop, match=rf"step {needed}: .*guard {name}.*try .*") as stopped:
        looking.look(needed, {**HEALTHY, **SICK[name]})
    assert f"guards.{name}=warn" in str(stopped.value)


def test_steps_without_a_gradient_get_one_hint_before_the_guard_stops_the_run():
    looking, warnings = watch()
    dead = {**HEALTHY, **SICK["dead_groups"]}
    for step in range(1, 9):
        looking.look(step, dead)
    assert warnings == [
        "step 3: no group had a gradient for 3 steps, so nothing was learned; the guard "
        "dead_groups stops the run after 10; try easier cases, more num_generations, or a warm "
        "start"
    ]
    looking.look(9, HEALTHY)
    for step in range(10, 14):
        looking.look(step, dead)
    assert len(warnings) == 2


@pytest.mark.parametrize("name", [name for name in SICK if name != "not_finite"])
def test_a_step_that_is_well_starts_the_count_again(name):
    needed = getattr(Guards(), name).steps
    looking, _ = watch()
    for step in range(1, 100):
        is_well = step % needed == 0
        looking.look(step, HEALTHY if is_well else {**HEALTHY, **SICK[name]})


@pytest.mark.parametrize("name", SICK)
def test_a_guard_that_only_warns_warns_once_until_it_was_well(name):
    looking, warnings = watch(**{name: "warn"})
    for row in [*[{**HEALTHY, **SICK[name]}] * 30, HEALTHY, *[{**HEALTHY, **SICK[name]}] * 30]:
        looking.look(1, row)
    assert len(warnings) == 2


@pytest.mark.parametrize("name", SICK)
def test_a_guard_that_is_off_says_nothing(name):
    looking, warnings = watch(**{name: {"action": "off"}})
    for step in range(1, 50):
        looking.look(step, {**HEALTHY, **SICK[name]})
    assert warnings == []


def test_limits_and_step_counts_of_guards_are_settings():
    looking, _ = watch(truncated={"limit": 0.05, "steps": 2})
    looking.look(1, HEALTHY)
    with pytest.raises(GuardStop, match="10% of the rollouts were cut off"):
        looking.look(2, HEALTHY)


def test_a_row_that_sums_up_several_steps_counts_as_many():
    looking, _ = watch()
    with pytest.raises(GuardStop, match="for 10 steps"):
        looking.look(10, {**HEALTHY, "call_rate": 0.0}, steps=10)


def test_an_agent_without_tools_need_not_call_any():
    looking, _ = watch()
    without = {name: value for name, value in HEALTHY.items() if name != "call_rate"}
    for step in range(1, 50):
        looking.look(step, without)


def test_a_run_that_has_solved_everything_warns_and_is_not_stopped():
    looking, warnings = watch()
    for step in range(1, 50):
        looking.look(step, {**HEALTHY, **SOLVED})
    assert len(warnings) == 1
    assert "every group was solved for 10 steps: nothing is left to learn" in warnings[0]


def test_a_single_failed_step_after_solved_ones_does_not_stop_a_run():
    looking, _ = watch()
    for step in range(1, 40):
        looking.look(step, {**HEALTHY, **SOLVED})
    looking.look(40, {**HEALTHY, **SICK["dead_groups"]})


def test_the_guard_of_the_cause_is_reported_before_those_of_its_effects():
    looking, _ = watch()
    cut_off = {**HEALTHY, "truncated": 1.0, "teaching_groups": 0.0, "entropy": 0.0, "call_rate": 0}
    with pytest.raises(GuardStop, match="guard truncated"):
        looking.look(10, cut_off, steps=10)


def test_rollouts_without_a_reward_are_not_called_too_hard():
    looking, _ = watch()
    with pytest.raises(GuardStop, match="no group had two rollouts to learn from"):
        looking.look(10, {**HEALTHY, "teaching_groups": 0.0, "dead/unscored": 4}, steps=10)


def test_the_entropy_of_no_tokens_is_no_collapse():
    looking, _ = watch(dead_groups="off")
    unscored = {"teaching_groups": 0.0, "entropy": 0.0, "dead/unscored": HEALTHY["groups"]}
    looking.look(10, {**HEALTHY, **unscored}, steps=10)


def test_a_model_that_gives_one_right_answer_has_not_collapsed():
    looking, _ = watch(dead_groups="off")
    looking.look(10, {**HEALTHY, **SOLVED, "entropy": 0.0}, steps=10)


@pytest.mark.parametrize("others", [{"dead/unscored": 1}, {"dead/failed": 1}])
def test_a_run_that_is_nearly_solved_has_not_collapsed(others):
    looking, _ = watch(dead_groups="off")
    nearly = {"teaching_groups": 0.0, "dead/solved": HEALTHY["groups"] - 1, "entropy": 1e-6}
    looking.look(10, {**HEALTHY, **nearly, **others}, steps=10)


def test_a_model_that_gives_one_wrong_answer_has_collapsed():
    looking, _ = watch()
    failed = {"teaching_groups": 0.0, "entropy": 1e-6, "dead/failed": 4, "dead/solved": 0}
    with pytest.raises(GuardStop, match="always gives the same answer"):
        looking.look(10, {**HEALTHY, **failed}, steps=10)


def test_a_figure_that_is_not_there_is_no_reason_to_stop():
    looking, _ = watch()
    for step in range(1, 50):
        looking.look(step, {"loss": 0.1})


def test_a_gradient_that_is_not_finite_stops_or_skips():
    looking, _ = watch()
    with pytest.raises(GuardStop, match="step 3: the gradient is not finite"):
        looking.gradient_is_broken(3)
    looking, warnings = watch(not_finite="warn")
    looking.gradient_is_broken(3)
    assert "skipped" in warnings[0]


def test_gradients_that_are_not_finite_stop_a_run_after_the_set_number_in_a_row():
    looking, warnings = watch(not_finite={"steps": 2})
    looking.gradient_is_broken(3)
    looking.gradient_is_broken(5)
    assert len(warnings) == 2
    with pytest.raises(GuardStop, match="step 6"):
        looking.gradient_is_broken(6)


def test_a_guard_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no_tools"):
        Guards(no_tools="warn")
    with pytest.raises(ValueError, match="stop"):
        Guards(entropy="maybe")


def test_a_warning_about_truncated_rewards_comes_at_the_first_step():
    looking, warnings = watch()
    row = {"dead/solved": 0, "dead/failed": 4, "truncated": 0.2, "reward": 0.2}
    for step in (1, 2):
        looking.look(step, HEALTHY | row)
    (warning,) = warnings
    assert "larger max_completion_length" in warning


def test_steps_that_learn_from_earlier_rollouts_count_with_the_next_that_play():
    looking, warnings = watch()
    for step in range(1, 20):
        played = {**HEALTHY, **SOLVED}
        looking.look(step, played if step % 2 else {"loss": 0.1, "entropy": 0.0})
    assert len(warnings) == 1
    assert "step 11" in warnings[0]
    looking, _ = watch()
    dead = {**HEALTHY, **SICK["dead_groups"]}
    for step in range(1, 11):
        looking.look(step, dead if step % 2 else {"loss": 0.1})
    with pytest.raises(GuardStop, match="for 11 steps in a row"):
        looking.look(11, dead)
