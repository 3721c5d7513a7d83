"""Assertions that a case carries."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sparring.contracts.rollouts import Rollout
from sparring.contracts.verdicts import Outcome
from sparring.measures import MeasureSet, assertions
from tests.rollouts import rollout


def asserted(answer: str, *listed: tuple[str, Any]) -> Rollout:
    played = rollout(answer)
    found = [
        {"type": kind.removeprefix("not-"), "value": value, "is_negated": kind.startswith("not-")}
        for kind, value in listed
    ]
    return replace(played, case=replace(played.case, fields={"assertions": found}))


def verdict(played: Rollout) -> Any:
    judged = asyncio.run(MeasureSet.of([assertions()]).judge(played))
    return judged.judgements[0].verdict


@pytest.mark.parametrize(
    ("answer", "kind", "value", "holds"),
    [
        ("Paris ", "equals", "Paris", True),
        ("paris", "equals", "Paris", False),
        ('{"a": 1}', "equals", {"a": 1}, True),
        ("{", "equals", {"a": 1}, False),
        ("42", "equals", 42, True),
        ("It is Paris", "contains", "Paris", True),
        ("It is paris", "contains", "Paris", False),
        ("It is paris", "icontains", "PARIS", True),
        ("a b", "contains-any", ["z", "b"], True),
        ("a b", "contains-all", ["z", "b"], False),
        ("A B", "icontains-all", ["a", "b"], True),
        ("A B", "icontains-any", ["z"], False),
        ("It is", "starts-with", "It", True),
        ("call 555-0100", "regex", r"\d{3}-\d{4}", True),
        ("{}", "is-json", None, True),
        ("{} and", "is-json", None, False),
        ('{"a": 1}', "is-json", {"required": ["a"]}, True),
        ('{"b": 1}', "is-json", {"required": ["a"]}, False),
        ('{"b": 1}', "is-json", '{"required": ["a"]}', False),
        ('so {"b": 1} or {"a": 1}', "contains-json", {"required": ["a"]}, True),
        ('so {"b": 1}', "contains-json", {"required": ["a"]}, False),
        ('here: {"a": [1]} and', "contains-json", None, True),
        ("here: {oops", "contains-json", None, False),
    ],
)
def test_an_assertion_holds_or_not_and_its_negation_the_other_way(
    answer: str, kind: str, value: Any, holds: bool
) -> None:
    plain = verdict(asserted(answer, (kind, value)))
    negated = verdict(asserted(answer, (f"not-{kind}", value)))
    assert (plain.outcome, negated.outcome) == (
        (Outcome.PASSED, Outcome.FAILED) if holds else (Outcome.FAILED, Outcome.PASSED)
    )


def test_the_first_one_that_does_not_hold_is_the_reason() -> None:
    failed = verdict(asserted("Rome", ("contains", "Rome"), ("contains", "Paris")))
    assert failed.reason == "not met: contains 'Paris'; the answer is 'Rome'"


def test_a_case_without_assertions_is_not_judged() -> None:
    assert verdict(rollout("x")).outcome is Outcome.CANNOT_TELL
