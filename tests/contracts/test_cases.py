"""Cases: the digest that identifies a set of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.cases import Case, Split, digest_of

cases = st.lists(
    st.builds(Case, st.text(max_size=3), st.just("What?"), st.integers(0, 3)),
    unique_by=lambda case: case.id,
    max_size=4,
)


@settings(max_examples=30)
@given(cases, st.randoms())
def test_the_digest_does_not_depend_on_the_order_of_the_cases(
    listed: list[Case], chance: Any
) -> None:
    shuffled = list(listed)
    chance.shuffle(shuffled)
    assert digest_of(shuffled) == digest_of(listed)
    assert digest_of(iter(listed)) == digest_of(listed)


@pytest.mark.parametrize(
    "change",
    [{"id": "b"}, {"input": "Why?"}, {"input": [{"role": "user"}]}, {"expected": 5},
     {"measures": ("exact",)}],
)  # fmt: skip
def test_the_digest_changes_with_whatever_decides_how_a_case_is_judged(
    change: Mapping[str, Any],
) -> None:
    case = Case("a", "What?", 4)
    other = Case("z", "Where?")
    assert digest_of([replace(case, **change), other]) != digest_of([case, other])


def test_the_digest_does_not_change_with_the_split_a_case_is_put_into() -> None:
    case = Case("a", "What?", 4)
    assert digest_of([replace(case, split=Split.HELD_OUT)]) == digest_of([case])


def test_the_digest_tells_one_case_from_none_and_from_two() -> None:
    one, two = Case("a", "x"), Case("b", "x")
    assert len({digest_of([]), digest_of([one]), digest_of([one, two])}) == 3


def test_an_expected_value_that_is_no_json_still_has_a_digest() -> None:
    assert digest_of([Case("a", "x", {1, 2})]) != digest_of([Case("a", "x", {1, 3})])


def test_a_case_cannot_be_changed_and_trains_unless_it_says_otherwise() -> None:
    case = Case("a", "x")
    assert (case.split, case.measures, case.fields) == (Split.TRAINING, (), {})
    with pytest.raises(FrozenInstanceError):
        case.split = Split.HELD_OUT  # type: ignore[misc]
