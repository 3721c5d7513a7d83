"""Copies of a case are found whatever their spacing, and only across splits."""

from __future__ import annotations

import pytest

from sparring.contracts.cases import Split
from sparring.contracts.errors import SuiteError
from sparring.suites.copies import CopyDetector, json_line


def detector(*cases: tuple[str, Split]) -> CopyDetector:
    found = CopyDetector({"id"})
    for number, (text, split) in enumerate(cases):
        found.add({"input": text, "id": number}, text, None, split)
    return found


def test_a_copy_in_another_split_is_refused_with_the_splits() -> None:
    copies = detector(("What is it?", Split.TRAINING), ("what  is it? ", Split.HELD_OUT))
    with pytest.raises(SuiteError, match=r"copies: 1, for example in training and held-out"):
        copies.refuse_copies()


def test_copies_in_one_split_and_different_cases_are_fine() -> None:
    detector(("a", Split.TRAINING), ("A", Split.TRAINING), ("b", Split.HELD_OUT)).refuse_copies()


def test_the_order_of_keys_does_not_matter() -> None:
    assert json_line({"a": 1, "b": 2}) == json_line({"b": 2, "a": 1})


def test_keys_that_are_not_text_are_refused() -> None:
    with pytest.raises(SuiteError, match="keys are not all strings"):
        json_line({(1, 2): 3})
