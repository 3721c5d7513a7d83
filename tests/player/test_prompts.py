"""A prompt holds what the SDK passes for one turn, in a form that every policy reads."""

from __future__ import annotations

from typing import Any

from agents import Agent, AgentOutputSchema, WebSearchTool, function_tool, handoff
from pydantic import BaseModel

from sparring.contracts.policies import Reply
from sparring.contracts.rollouts import Message
from sparring.player.conversation import to_items
from sparring.player.prompts import Prompt, prompt_of


class Weather(BaseModel):
    degrees: int


@function_tool
def look_up(city: str) -> str:
    """Look up the weather."""
    return city


def prompt(system: str = "", items: Any = (), schema: Any = None) -> Prompt:
    return Prompt(system, items, (), schema)


def test_a_text_is_a_message_of_the_user() -> None:
    made = prompt_of(None, "hello", [], None, [])
    assert made.messages() == [Message("user", "hello")]


def test_tools_are_offered_before_handoffs_and_hosted_tools_are_left_out() -> None:
    made = prompt_of("", "hello", [WebSearchTool(), look_up], None, [handoff(Agent(name="clerk"))])
    assert made.tool_names == ["look_up", "transfer_to_clerk"]
    offered = made.tools[0]["function"]
    assert offered["description"] == "Look up the weather."
    assert offered["parameters"]["required"] == ["city"]


def test_a_plain_text_output_has_no_schema() -> None:
    assert prompt_of("", "hello", [], AgentOutputSchema(str), []).output_schema is None
    made = prompt_of("", "hello", [], AgentOutputSchema(Weather), [])
    assert made.output_schema is not None
    assert "degrees" in made.output_schema["properties"]


def test_the_schema_of_the_output_follows_the_instructions() -> None:
    schema = {"type": "object"}
    request = 'Give your final answer as JSON that fits this schema:\n{"type": "object"}'
    assert prompt("Be brief.", schema=schema).system_text() == f"Be brief.\n\n{request}"
    assert prompt(schema=schema).messages() == [Message("system", request)]


def test_equal_schemas_are_written_alike() -> None:
    one, other = {"type": "object", "title": "W"}, {"title": "W", "type": "object"}
    assert prompt(schema=one).system_text() == prompt(schema=other).system_text()


def test_instructions_come_first() -> None:
    made = prompt("Be brief.", [{"role": "user", "content": "hello"}])
    assert made.messages() == [Message("system", "Be brief."), Message("user", "hello")]


def test_the_last_item_of_our_model_is_found() -> None:
    own = [item.model_dump(exclude_unset=True) for item in to_items(Reply("hi"), [], 0)]
    user, foreign = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}
    assert prompt(items=[user, *own, user, *own, foreign, user]).last_own_index == 3
    assert prompt(items=[user, foreign]).last_own_index == -1
