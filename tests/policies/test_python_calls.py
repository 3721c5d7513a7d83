"""Calls written in Python are read as data: nothing of them is ever executed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparring.policies.python_calls import PythonCalls
from sparring.policies.tool_calls import MAX_CALLS

CALLS = PythonCalls()


def written(body: str) -> str:
    return f"<|tool_call_start|>{body}<|tool_call_end|>"


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("[f()]", {}),
        ("[f(a='x', b=1.5, c=None)]", {"a": "x", "b": 1.5, "c": None}),
        ('[f(a={"x": true, "y": [null, false]})]', {"a": {"x": True, "y": [None, False]}}),
        ("[f(a='\x00')]", {"a": "\x00"}),
        ("[f(a=-3, b=('x', 'y'))]", {"a": -3, "b": ["x", "y"]}),
    ],
)
def test_literals_of_python_and_of_json_are_read(body: str, arguments: Any) -> None:
    (call,) = CALLS.parse(written(body)).calls
    assert (call.tool, json.loads(call.arguments)) == ("f", arguments)


def test_text_before_the_calls_is_the_content_and_dotted_names_stay() -> None:
    reply = CALLS.parse("Well. " + written("[shop.find(a=1), g()]"))
    assert reply.content == "Well."
    assert [call.tool for call in reply.calls] == ["shop.find", "g"]
    assert CALLS.parse(" no call ").content == "no call"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("f()", "must be a list"),
        ("[1]", "an item that is not a call"),
        ("[f(1)]", "given by name"),
        ("[f(**{})]", "given by name"),
        ("[f(a=g())]", "not a literal value"),
        ("[f(a=1e999)]", "a number that is too large"),
        ("[f(a=b'x')]", "not a literal value"),
        ("[f(a=", "not a list of calls"),
        ("[f(a=" + "[" * 70 + "]" * 70 + ")]", "nested deeper"),
        ("[" + "f(), " * (MAX_CALLS + 1) + "]", "more than"),
        ("[f(a='" + "x" * 100_001 + "')]", "longer than"),
    ],
)
def test_text_that_is_no_call_is_malformed(body: str, problem: str) -> None:
    reply = CALLS.parse(written(body))
    assert problem in reply.malformed
    assert not reply.calls


def test_calls_that_are_not_closed_are_malformed() -> None:
    assert "not closed" in CALLS.parse("<|tool_call_start|>[f()]").malformed


def test_a_call_can_be_opened_for_the_model() -> None:
    assert CALLS.opening(None) == "<|tool_call_start|>["
    assert CALLS.opening("f") == "<|tool_call_start|>[f("
