"""Calls of Gemma 4 are read value by value; what cannot be read is malformed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.policies.gemma_calls import GemmaCalls

QUOTE = '<|"|>'
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def written(value: Any) -> str:
    if isinstance(value, str):
        return f"{QUOTE}{value}{QUOTE}"
    if isinstance(value, dict):
        fields = (f"{name}:{written(field)}" for name, field in value.items())
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_arguments_are_read_as_they_were_written(arguments: dict[str, Any]) -> None:
    reply = GemmaCalls().parse(f"So:<|tool_call>call:f{written(arguments)}<tool_call|>")
    assert (reply.content, reply.malformed) == ("So:", "")
    assert json.loads(reply.calls[0].arguments) == arguments


def test_spaces_between_values_and_quoted_names_are_read_too() -> None:
    text = f"<|tool_call> call: f {'{'} {QUOTE}a{QUOTE}: [ 1 , 2 ] {'}'} <tool_call|>"
    (call,) = GemmaCalls().parse(text).calls
    assert (call.tool, json.loads(call.arguments)) == ("f", {"a": [1, 2]})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("call:f{a:" + "9" * 5000 + "}", "no comma or }"),
        ("call:f{a:1e9999}", "a number that is too large"),
        ("call:f{" + "a:{" * 80 + "}" * 81, "deeper than 64"),
        ("call:f[1]", "must have the form call:NAME"),
        (f"call:f{{{QUOTE}a{QUOTE} 1}}", "no colon after the field 'a'"),
    ],
)
def test_hostile_arguments_are_malformed(text: str, problem: str) -> None:
    reply = GemmaCalls().parse(f"<|tool_call>{text}<tool_call|>")
    assert problem in reply.malformed
    assert not reply.calls


def test_too_many_calls_are_malformed() -> None:
    assert "more than 32" in GemmaCalls().parse("<|tool_call>call:f{}<tool_call|>" * 33).malformed


def test_a_call_ends_thinking_that_is_not_closed() -> None:
    reply = GemmaCalls().parse("<|channel>thought\nCold. <|tool_call>call:f{}<tool_call|>")
    assert (reply.content, reply.thinking) == ("", "Cold.")
    assert [call.tool for call in reply.calls] == ["f"]


def test_every_thought_is_taken_out_of_the_answer() -> None:
    thought = "<|channel>thought\n{}\n<channel|>"
    reply = GemmaCalls().parse(f"A\n<channel|>One {thought.format('B')}two.")
    assert (reply.content, reply.thinking) == ("One two.", "A\nB")


def test_the_last_call_may_lack_its_end() -> None:
    calls = "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}"
    assert [call.tool for call in GemmaCalls().parse(calls).calls] == ["f", "g"]
    assert GemmaCalls().parse(calls[:-1]).malformed
    assert GemmaCalls().parse(f"<|tool_call>call:f{{}}{calls}").malformed


def test_names_in_ordinary_quotes_are_read_without_them() -> None:
    (call,) = GemmaCalls().parse('<|tool_call>call:f{"day": True}<tool_call|>').calls
    assert json.loads(call.arguments) == {"day": True}


def test_a_long_name_of_a_field_takes_no_time() -> None:
    text = "<|tool_call>call:f{a" + " " * 200_000 + "<tool_call|>"
    started = time.process_time()
    assert GemmaCalls().parse(text).malformed
    assert time.process_time() - started < 1
