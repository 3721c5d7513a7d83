"""A tool is called with a case's worked arguments, or with made-up ones of the right types."""

from __future__ import annotations

import json
from typing import Literal

from agents import function_tool

from sparring.contracts.cases import Case
from sparring.jobs.trial_arguments import made_up_arguments, worked_arguments


@function_tool
def book(
    day: Literal["monday", "friday"], seats: int, price: float, name: str, window: bool
) -> str:
    """Book seats."""
    return f"{day} {seats} {price} {name} {window}"


def test_made_up_arguments_have_the_types_of_the_schema() -> None:
    assert json.loads(made_up_arguments(book)) == {
        "day": "monday", "seats": 1, "price": 1.0, "name": "example", "window": True,
    }  # fmt: skip


def test_worked_arguments_are_those_of_the_calls_in_the_case() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "book", "arguments": '{"seats": 2}'}
    case = Case("c", [{"role": "user", "content": "two seats"}, call])
    assert worked_arguments(case) == {"book": '{"seats": 2}'}
    assert worked_arguments(Case("c", "two seats")) == {}
