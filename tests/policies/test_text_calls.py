"""Arguments that are written as text get the types of the tool's schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparring.policies.text_calls import FunctionTags, KeyValueTags, typed_arguments
from sparring.policies.tool_calls import MAX_CALLS

DEFINITIONS = {
    "K": {"type": "string"},
    "Nested": {"anyOf": [{"$ref": "#/$defs/K"}, {"type": "null"}]},
    "Endless": {"anyOf": [{"$ref": "#/$defs/Endless"}, {"type": "string"}]},
}


def schema(**properties: Any) -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": properties, "$defs": DEFINITIONS}
    return [{"type": "function", "function": {"name": "f", "parameters": parameters}}]


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "null", "null"),
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, "five", "five"),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "array"}, "[1, 'a']", [1, "a"]),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "5", "5"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, "5", 5),
        ({"type": ["integer", "null"]}, "None", None),
        ({"$ref": "#/$defs/K"}, "5", "5"),
        ({"$ref": "#/$defs/Nested"}, "5", "5"),
        ({"$ref": "#/$defs/Endless"}, "5", "5"),
        ({"$ref": "#/$defs/Other"}, "{}", {}),
        ({}, "5", 5),
        ({}, "NaN", "NaN"),
        ({}, "1e999", "1e999"),
        ({}, "b'bytes'", "b'bytes'"),
        ({}, "9" * 20_000, "9" * 20_000),
    ],
)
def test_a_text_becomes_the_value_that_the_schema_asks_for(
    field: dict[str, Any], text: str, value: Any
) -> None:
    assert typed_arguments("f", {"x": text}, schema(x=field)) == {"x": value}


def test_an_unknown_tool_or_argument_is_read_as_a_literal() -> None:
    assert typed_arguments("g", {"x": "5"}, schema(x={"type": "string"})) == {"x": 5}
    assert typed_arguments("f", {"y": "[1]"}, schema()) == {"y": [1]}


def test_a_value_keeps_its_lines_and_loses_one_break_at_each_end() -> None:
    value = "\n a\n b \n"
    text = f"<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>"
    text = FunctionTags().opening("f") + text
    (call,) = FunctionTags().parse(text, schema(x={"type": "string"})).calls
    assert json.loads(call.arguments) == {"x": value}


def test_content_before_the_calls_is_kept() -> None:
    reply = KeyValueTags().parse("First.\n<tool_call>f\n</tool_call>")
    assert (reply.content, reply.calls[0].tool, reply.calls[0].arguments) == ("First.", "f", "{}")


@pytest.mark.parametrize("calls", [FunctionTags(), KeyValueTags()])
def test_too_many_calls_and_deep_values_are_malformed(calls: FunctionTags | KeyValueTags) -> None:
    one = (
        calls.opening("f")
        + {"FunctionTags": "</function>\n", "KeyValueTags": ""}[type(calls).__name__]
    )
    many = (one + "</tool_call>\n") * (MAX_CALLS + 1)
    assert "more than" in calls.parse(many).malformed
    for deep in ("[" * 70 + "]" * 70, "(" * 70 + "1" + ",)" * 70):
        argument = {
            "FunctionTags": f"<parameter=x>\n{deep}\n</parameter>\n</function>\n",
            "KeyValueTags": f"<arg_key>x</arg_key>\n<arg_value>{deep}</arg_value>\n",
        }[type(calls).__name__]
        reply = calls.parse(calls.opening("f") + argument + "</tool_call>")
        assert "nested deeper" in reply.malformed


def test_each_format_knows_its_own_marks_only() -> None:
    answer = "Write <function=f> in such a file."
    assert KeyValueTags().parse(answer).content == answer
    assert "outside of <tool_call>" in FunctionTags().parse(answer).malformed
    unclosed = KeyValueTags().parse("<tool_call>f<arg_key></tool_call>")
    assert "needs <arg_key> and <arg_value>" in unclosed.malformed
