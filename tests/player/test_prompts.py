"""A prompt holds what the SDK passes for one turn, in a form that every policy reads."""

from __future__ import annotations

from typing import Any

from agents import Agent, AgentOutputSchema, WebSearchTool, function_tool, handoff
from pydantic import BaseModel

from sparring.contracts.policies import Reply
from sparring.contracts.rollouts import Message
from sparring.player.conversation import to_items
from sparring.player.model_call import ModelCall
from sparring.player.prompts import Prompt, prompt_of
from sparring.player.turns import SampledTurn


class Weather(BaseModel):
    degrees: int


@function_tool
def look_up(city: str) -> str:
    """Look up the weather."""
    return city


def prompt(system: str = "", items: Any = (), schema: Any = None) -> Prompt:
    return Prompt(system, items, (), schema)


def called(given: Prompt, continues: SampledTurn | None = None) -> ModelCall:
    return given.call(None, is_parallel=None, continues=continues)


def test_a_text_is_a_message_of_the_user() -> None:
    made = prompt_of(None, "hello", [], None, [])
    assert called(made).messages == [Message("user", "hello")]


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


def test_instructions_come_first_unless_the_call_continues_a_turn() -> None:
    items = [{"role": "user", "content": "hello"}]
    whole = called(prompt("Be brief.", items))
    assert whole.messages == [Message("system", "Be brief."), Message("user", "hello")]
    assert (whole.leading, called(prompt("", items)).leading) == (1, 0)
    own = [item.model_dump(exclude_unset=True) for item in to_items(Reply("hi"), [], 0)]
    continued = called(prompt("Be brief.", [*items, *own, *items]), SampledTurn(0, "main"))
    assert (continued.messages, continued.leading) == ([Message("user", "hello")], 0)


def test_the_last_item_of_our_model_is_found() -> None:
    own = [item.model_dump(exclude_unset=True) for item in to_items(Reply("hi"), [], 0)]
    user, foreign = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}
    assert prompt(items=[user, *own, user, *own, foreign, user]).last_own_index == 3
    assert prompt(items=[user, foreign]).last_own_index == -1
