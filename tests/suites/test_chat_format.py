"""Conversations in the chat format, as the SDK's input items."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.contracts.cases import Split
from sparring.contracts.errors import SuiteError
from sparring.suites import Suite
from sparring.suites.chat_format import to_input_items

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def test_calls_and_results_become_items_of_their_own() -> None:
    items = to_input_items(
        [
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            {"role": "assistant", "content": "2", "tool_calls": None},
        ],
        "record 0",
    )
    assert items == [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"role": "assistant", "content": "2"},
    ]


def test_items_of_the_sdk_and_arguments_as_objects_are_accepted() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    call = {"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}
    made = to_input_items([item, {"role": "assistant", "tool_calls": [call]}], "record 0")
    assert made[0] == item
    assert made[1]["arguments"] == '{"a": 1}'


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("hello", "the input of record 7 contains a value of type str"),
        ({"role": "tool", "content": "2"}, "without the `tool_call_id`"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "add"}}]}, "without an id"),
        ({"role": "assistant", "tool_calls": ["add"]}, "without an id or a function name"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_record(message: Any, problem: str) -> None:
    with pytest.raises(SuiteError, match=problem):
        to_input_items([message], "record 7")


def test_a_suite_of_chat_histories_has_items_that_the_sdk_reads() -> None:
    history = [{"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "So?"}]
    suite = Suite.from_records([{"input": history, "split": "test"}], minimum_cases=1)
    (case,) = suite.cases(Split.HELD_OUT)
    assert [item.get("type") for item in case.input] == ["function_call", None]
