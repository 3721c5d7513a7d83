"""Cases: the digest that identifies a set of them, their questions and worked examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.cases import Case, Split, digest_of, examples_before, question_of

WORKED: list[dict[str, Any]] = [
    {"role": "user", "content": "What is 1 + 1?"},
    {"type": "function_call", "name": "add", "arguments": "{}"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "What is 2 + 2?"},
]

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


def test_the_question_is_the_last_user_message_and_what_precedes_it_are_examples() -> None:
    case = Case("c", WORKED)
    assert question_of(case) == "What is 2 + 2?"
    assert examples_before(case) == WORKED[:3]
    plain = Case("c", "What is 2 + 2?")
    assert (question_of(plain), examples_before(plain)) == ("What is 2 + 2?", [])
    nobody = Case("c", [{"role": "system", "content": "Be quick."}])
    assert (question_of(nobody), examples_before(nobody)) == ("", [])


def test_a_question_that_is_not_text_is_shown_as_json() -> None:
    content = [{"type": "input_text", "text": "What is this?"}]
    assert json.loads(question_of(Case("c", [{"role": "user", "content": content}]))) == content
