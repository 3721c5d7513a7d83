from __future__ import annotations

from sparring.learning.parity import Parity, likely_cause

TRAINED = [-0.1, -2.0, -0.7, -3.1, -0.2, -1.4, -0.9, -0.05, -4.0, -1.1]


def test_float32_is_held_to_the_largest_gap():
    assert Parity(100, largest=9e-4, mean=1e-6, dtype="float32").holds
    assert not Parity(100, largest=2e-3, mean=1e-6, dtype="float32").holds


def test_bfloat16_is_held_to_the_mean():
    assert Parity(100, largest=0.25, mean=0.01, dtype="bfloat16").holds
    assert not Parity(100, largest=0.25, mean=0.1, dtype="bfloat16").holds


def test_a_parity_names_both_figures_and_the_limit():
    text = str(Parity(7, 0.3, 0.1, "float32"))
    assert "3.0e-01 at most and 1.0e-01 on average over 7 tokens" in text
    assert "limit 0.001 on the largest" in text


def test_another_temperature_is_recognised():
    at_one = [value * 1.7 for value in TRAINED]
    assert "temperature 1" in likely_cause(at_one, TRAINED, at_one)


def test_log_probabilities_of_the_wrong_positions_are_recognised():
    assert "shifted by one" in likely_cause([*TRAINED[1:], -5.0], TRAINED, [0.0] * 10)


def test_anything_else_names_weights_sampling_and_precision():
    other = [value - 0.4 for value in TRAINED]
    assert "not kept in sync" in likely_cause(other, TRAINED, TRAINED)
