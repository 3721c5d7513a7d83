"""A failed call is explained to the model in the same words, in play and in the shipped agent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import ModelBehaviorError, RunContextWrapper
from agents.run_config import ToolErrorFormatterArgs
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.rollouts import CallFailure, RequestedCall
from sparring.player import tool_errors
from sparring.player.tool_errors import ToolErrors, argument_problems

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
SEND = {"type": "function", "function": {"name": "send", "parameters": {}}}


def failure(
    kind: Any, tool: str = "add", *, id: str = "1", error: Exception | None = None
) -> ToolErrorFormatterArgs[Any]:
    fields: dict[str, Any] = {
        "kind": kind,
        "tool_type": "function",
        "tool_name": tool,
        "call_id": id,
        "default_message": "the SDK's own",
        "run_context": RunContextWrapper(None),
    }
    made = ToolErrorFormatterArgs(**fields)
    object.__setattr__(made, "error", error)  # SDKs before 0.24 do not have it
    return made


def explained(errors: ToolErrors, failed: ToolErrorFormatterArgs[Any], own: Any = None) -> Any:
    text: Any = errors.formatter(own)(failed)
    return asyncio.run(text)


@pytest.fixture
def noted() -> list[tuple[str, CallFailure]]:
    return []


@pytest.fixture
def errors(noted: list[tuple[str, CallFailure]]) -> ToolErrors:
    made = ToolErrors(lambda call_id, failure: noted.append((call_id, failure)))
    made.remember([RequestedCall("1", "add", '{"a": "one"}')], [ADD, SEND])
    return made


def test_an_unknown_tool_is_answered_with_the_tools_that_were_offered(
    errors: ToolErrors, noted: list[tuple[str, CallFailure]]
) -> None:
    text = explained(errors, failure("tool_not_found", "subtract"))
    assert text == "There is no tool 'subtract'. The tools are: add, send."
    assert noted == [("1", CallFailure.UNKNOWN_TOOL)]


def test_a_call_that_was_not_remembered_had_no_tools(errors: ToolErrors) -> None:
    text = explained(errors, failure("tool_not_found", "subtract", id="other"))
    assert text == "There is no tool 'subtract'. The tools are: none."


def test_an_exception_is_described_on_one_line(
    errors: ToolErrors, noted: list[tuple[str, CallFailure]]
) -> None:
    text = explained(errors, failure("tool_exception", error=ValueError("too\n  big")))
    assert text == "add failed: ValueError: too big"
    assert noted == [("1", CallFailure.RAISED)]


def test_wrong_arguments_are_described_by_their_schema(errors: ToolErrors) -> None:
    rejected = ModelBehaviorError("Invalid JSON input for tool add")
    text = explained(errors, failure("tool_exception", error=rejected))
    assert text == "add failed: a: 'one' is not of type 'integer'"


def test_wrong_arguments_that_the_schema_accepts_are_described_by_the_error(
    errors: ToolErrors,
) -> None:
    rejected = ModelBehaviorError("out of range")
    text = explained(errors, failure("tool_exception", "send", error=rejected))
    assert text == "send failed: ModelBehaviorError: out of range"


def test_other_failures_keep_the_sdks_text(
    errors: ToolErrors, noted: list[tuple[str, CallFailure]]
) -> None:
    assert explained(errors, failure("approval_rejected")) is None
    assert noted == []


def test_the_users_own_formatter_goes_first_and_the_failure_is_noted_all_the_same(
    errors: ToolErrors, noted: list[tuple[str, CallFailure]]
) -> None:
    async def later(_: Any) -> str:
        return "mine, later"

    failed = failure("tool_not_found", "subtract")
    assert explained(errors, failed, lambda _: "mine") == "mine"
    assert explained(errors, failed, later) == "mine, later"
    assert explained(errors, failed, lambda _: None).startswith("There is no tool")
    assert len(noted) == 3


def test_the_oldest_calls_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_errors, "_MAX_CALLS", 2)
    errors = ToolErrors()
    for id in "123":
        errors.remember([RequestedCall(id, "add", "{}")], [ADD])
    texts = [explained(errors, failure("tool_not_found", "x", id=id)) for id in "123"]
    assert [text.endswith("none.") for text in texts] == [True, False, False]


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
LIST = {"type": "object", "properties": {"xs": {"type": "array", "items": {"type": "integer"}}}}


def test_arguments_that_fit_have_no_problems() -> None:
    assert argument_problems('{"a": 1, "b": 2}', SCHEMA) == ""


def test_a_problem_names_the_argument_at_fault() -> None:
    assert argument_problems('{"a": 1, "b": "two"}', SCHEMA) == "b: 'two' is not of type 'integer'"


def test_a_problem_inside_an_argument_names_its_place() -> None:
    assert argument_problems('{"xs": [1, "two"]}', LIST).startswith("xs[1]: 'two'")


def test_a_problem_of_the_whole_is_one_of_the_arguments() -> None:
    assert argument_problems("[]", SCHEMA) == "arguments: [] is not of type 'object'"
    assert argument_problems('{"a": 1}', SCHEMA) == "arguments: 'b' is a required property"


@given(st.lists(st.text(max_size=300), max_size=12))
def test_at_most_three_short_problems_are_described(values: list[str]) -> None:
    problems = argument_problems(json.dumps({"xs": ["bad;" + value for value in values]}), LIST)
    assert problems.count("xs[") == min(3, len(values))
    assert len(problems) < 3 * 140
