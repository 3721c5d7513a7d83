"""The weights of ECHO's tokens: what each normalisation makes equal, however rows are split."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.rollouts import ResultBody
from sparring.contracts.training import Normalization
from sparring.learning.credit.tool_results import Totals, token_weight
from sparring.learning.rows import LearningRollout, LearningRow

LONGEST = 64
NORMALIZATIONS: tuple[Normalization, ...] = (
    "selected_tokens", "sequence_mean", "seq_mean_token_sum_norm",
)  # fmt: skip
LENGTHS = st.lists(st.integers(0, LONGEST), min_size=1, max_size=6).filter(any)


def learned(*lengths: int) -> LearningRollout:
    """A rollout with tool results of these lengths, one token apart, each in two rows."""
    bodies, start = [], 0
    for length in lengths:
        bodies.append(ResultBody("find", start, start + length))
        start += length + 1
    one = array("i", [1])
    rows = (bodies[:1], bodies[1:])
    return LearningRollout(
        tuple(LearningRow(one, one, b"\x01", array("f", [0.0]), tuple(each)) for each in rows), 1.0
    )


def test_totals_count_tokens_of_all_rows_and_the_rollouts_that_have_any() -> None:
    assert Totals.of([learned(2, 3), learned(), learned(4)]) == Totals(tokens=9, rollouts=2)


@settings(max_examples=40)
@given(LENGTHS, st.integers(0, 6))
def test_totals_do_not_depend_on_how_rollouts_are_split_over_ranks(
    lengths: list[int], cut: int
) -> None:
    each = [learned(length) for length in lengths]
    parts = [Totals.of(each[:cut]), Totals.of(each[cut:])]
    assert Totals.merged(parts) == Totals.of(each)


@settings(max_examples=40)
@given(LENGTHS)
def test_weights_that_are_means_add_up_to_one(lengths: list[int]) -> None:
    totals = Totals.of(learned(length) for length in lengths)
    for normalization in NORMALIZATIONS[:2]:
        weights = [token_weight(normalization, each, totals, LONGEST) * each for each in lengths]
        assert sum(weights) == pytest.approx(1)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_a_rollout_without_tool_results_has_no_weight_even_where_nobody_has_any(
    normalization: Normalization,
) -> None:
    assert token_weight(normalization, 0, Totals(), LONGEST) == 0
    assert token_weight(normalization, 0, Totals(9, 2), LONGEST) == 0


def test_selected_tokens_gives_every_token_the_same_weight() -> None:
    totals = Totals(tokens=40, rollouts=2)
    weights = {token_weight("selected_tokens", each, totals, LONGEST) for each in (10, 30)}
    assert weights == {1 / 40}


def test_sequence_mean_gives_every_rollout_the_same_weight() -> None:
    totals = Totals(tokens=40, rollouts=2)
    assert [
        each * token_weight("sequence_mean", each, totals, LONGEST) for each in (10, 30)
    ] == pytest.approx([0.5, 0.5])


def test_a_fixed_length_makes_a_weight_that_other_lengths_do_not_change() -> None:
    name: Normalization = "seq_mean_token_sum_norm"
    assert token_weight(name, 5, Totals(10, 2), LONGEST) == token_weight(
        name, 5, Totals(90, 2), LONGEST
    )
    assert token_weight(name, 5, Totals(10, 2), 50) == pytest.approx(1 / 100)
