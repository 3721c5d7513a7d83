"""What a heartbeat says is given once, whatever attempts it comes from."""

import pytest

from sparring.contracts.progress import (
    NewLines,
    SlowerThanExpected,
    left_text,
    seconds_left,
    step_line,
)


def beat(step, **besides):
    return {"pid": 1, "step": step, "steps": 9, "messages": [], "metrics": {"loss": 0.5}, **besides}


def test_each_step_and_each_validation_is_a_line_of_its_own_and_comes_once():
    lines = NewLines()
    assert lines(beat(0, validated_at=0, validation=0.25)) == ["validation at step 0: reward 0.250"]
    assert lines(beat(1, validated_at=0, validation=0.25)) == ["step 1/9 · loss +0.500"]
    assert lines(beat(1, validated_at=0, validation=0.25)) == []
    assert lines(beat(1, validated_at=1, validation=None)) == [
        "validation at step 1: reward unknown: no rollout could be scored"
    ]


def test_a_resumed_attempt_repeats_no_line_and_prints_no_empty_one():
    lines = NewLines()
    lines(beat(4, validated_at=4, validation=0.5))
    assert lines(beat(2, pid=2, messages=["goes on"], metrics={})) == ["goes on"]
    assert lines(beat(3, pid=2, messages=["goes on"])) == ["step 3/9 · loss +0.500"]


def test_a_step_line_fits_80_columns_and_keeps_what_every_step_has():
    rates = {f"pass_rate/{name}": 0.25 for name in ("looked_it_up", "numeric", "polite_words")}
    metrics = {"loss": -0.348, "reward": 0.25, "live_groups": 1.0, **rates}
    line = step_line(beat(100, steps=500, metrics=metrics, seconds_left=720.0))
    assert line.startswith("step 100/500 · loss -0.348 · reward 0.25 · live groups 100% · 12 min")
    assert len(line) <= 80
    short = step_line(beat(1, metrics={"reward": 0.25, **rates}))
    assert short == "step 1/9 · reward 0.25 · looked_it_up 25% · numeric 25% · polite_words 25%"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0.0, ""),
        (-3.0, ""),
        (0.4, "less than a minute left"),
        (59.0, "less than a minute left"),
        (61.0, "2 min left"),
        (720.0, "12 min left"),
        (7200.0, "2.0 h left"),
    ],
)
def test_the_time_left_counts_no_seconds_and_is_not_named_once_it_is_over(seconds, text):
    assert left_text(seconds) == text


def test_the_time_left_of_an_old_heartbeat_is_less_by_its_age():
    assert seconds_left({"seconds_left": 50.0, "time": 100.0}, now=130.0) == 20.0
    assert seconds_left({"seconds_left": 50.0, "time": 100.0}, now=150.0) is None
    assert seconds_left({"seconds_left": None, "time": 100.0}, now=130.0) is None


def test_a_training_that_is_slower_than_its_check_expected_says_so_once():
    slower = SlowerThanExpected(540 / 3600)
    assert slower(beat(0, time=1000.0)) == []
    assert slower(beat(1, time=1100.0, seconds_left=2000.0)) == []  # the first step warms up
    assert slower(beat(2, time=1200.0, seconds_left=340.0)) == []
    assert slower(beat(3, time=1300.0, seconds_left=660.0)) == [
        "slower than the check expected: 16 min instead of 9 min"
    ]
    assert slower(beat(4, time=1400.0, seconds_left=900.0)) == []
    assert SlowerThanExpected(None)(beat(3, time=1300.0, seconds_left=660.0)) == []
