import math

import pytest

from sparring.contracts.verdicts import Judgement, cannot_tell, failed, passed, scored


def test_a_verdict_needs_a_reason():
    for make in (passed, failed, cannot_tell):
        with pytest.raises(ValueError, match="reason"):
            make("  ")


def test_a_score_must_be_a_finite_number():
    for score in (math.nan, math.inf, True):
        with pytest.raises(ValueError, match="finite"):
            scored(score, "why")


def test_correct_means_passed_or_scored_from_the_threshold_upwards():
    assert Judgement("m", passed("x"), 1.0).is_correct is True
    assert Judgement("m", failed("x"), 1.0).is_correct is False
    assert Judgement("m", scored(0.7, "x"), 1.0, threshold=0.7).is_correct is True
    assert Judgement("m", scored(0.69, "x"), 1.0, threshold=0.7).is_correct is False
    assert Judgement("m", cannot_tell("x"), 1.0).is_correct is None
