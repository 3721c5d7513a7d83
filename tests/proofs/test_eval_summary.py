import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.rollouts import Ending
from sparring.contracts.verdicts import Judgement, cannot_tell, failed, passed
from sparring.proofs.eval_summary import EvalTally, Reasons
from sparring.proofs.intervals import share_of_cases
from tests.rollouts import rollout


def test_wilsons_interval_for_one_rollout_per_case():
    share = share_of_cases([1.0] * 20 + [0.0] * 80)
    assert share is not None
    assert (round(share.low, 3), round(share.high, 3)) == (0.133, 0.289)  # Wilson, 20 of 100


def test_no_cases_give_no_interval():
    assert share_of_cases([]) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_the_interval_holds_the_share_and_stays_between_0_and_1(shares):
    share = share_of_cases(shares)
    assert share is not None
    assert 0 <= share.low <= share.value + 1e-9
    assert share.value - 1e-9 <= share.high <= 1


def test_rollouts_that_repeat_their_case_add_no_certainty():
    """Ten cases played a hundred times, alike within a case, are ten pieces of evidence."""
    repeated = share_of_cases([1.0] * 5 + [0.0] * 5)
    spread = share_of_cases([0.5] * 10)
    assert repeated is not None
    assert spread is not None
    assert repeated.high - repeated.low > 0.4
    assert spread.high - spread.low <= repeated.high - repeated.low


def test_reasons_of_one_shape_are_counted_together():
    reasons = Reasons()
    for number in range(3):
        reasons.add(f"expected {number}, got '{number + 1}'")
    reasons.add("no number")
    first, second = reasons.most_common()
    assert (first.count, first.reason) == (3, "expected 0, got '1'")
    assert second.count == 1


def test_an_apostrophe_is_not_a_quote():
    reasons = Reasons()
    reasons.add("didn't call add; it isn't right")
    reasons.add("didn't answer; it isn't right")
    assert len(reasons.most_common()) == 2


def test_a_million_different_reasons_do_not_fill_the_memory():
    reasons = Reasons()
    for number in range(20_000):
        reasons.add("".join(chr(97 + int(digit)) for digit in str(number)))
    assert len(reasons._counts) <= 2000


def test_the_summary_counts_what_happened():
    tally = EvalTally()
    tally.add(
        rollout("x", judgements=(Judgement("m", passed("yes"), 1.0),), reward=1.0, tools=["add"])
    )
    tally.add(rollout("x", id="d", judgements=(Judgement("m", failed("no"), 1.0),), reward=0.0))
    tally.add(rollout("", id="e", judgements=(Judgement("m", cannot_tell("broke"), 1.0),)))
    tally.add(rollout("", id="f", ending=Ending.UNPARSABLE_CALL, detail="not JSON"))
    figures = tally.figures()
    assert figures.rollouts == 4
    assert figures.unscored == 2
    assert figures.reward == pytest.approx(0.5)
    assert figures.parse_rate == pytest.approx(0.75)
    measure = figures.measures["m"]
    assert (measure.judged, measure.cannot_tell) == (2, 1)
    assert measure.pass_rate is not None
    assert measure.pass_rate.value == pytest.approx(0.5)
    assert figures.as_json()["causes"] == [
        {"count": 1, "reason": "unparsable_call: not JSON", "shape": "unparsable_call: not JSON"}
    ]
    json.dumps(figures.as_json())
