"""Items of the SDK and messages of Sparring say the same."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from agents import Agent, AgentOutputSchema, WebSearchTool, function_tool, handoff
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from sparring.contracts.errors import Untrainable
from sparring.contracts.policies import Finish, Reply, Sample
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.player.conversation import (
    Prompt,
    TaggedTurns,
    prompt_of,
    text_of,
    to_items,
    to_messages,
    turn_of,
)
from sparring.player.recorder import Answer, ModelCall, SampledTurn

texts = st.text(max_size=20)
calls = st.lists(st.builds(RequestedCall, st.text("abc", min_size=1), texts, texts), max_size=3)


def dumped(reply: Reply, made: list[RequestedCall], turn: int) -> list[dict[str, Any]]:
    """As the SDK passes the items of one turn to the next."""
    return [item.model_dump(exclude_unset=True) for item in to_items(reply, made, turn)]


@given(texts, calls, st.integers(0, 9))
def test_a_reply_comes_back_as_one_message_of_its_turn(
    content: str, made: list[RequestedCall], turn: int
) -> None:
    items = dumped(Reply(content), made, turn)
    assert to_messages(items) == [Message("assistant", content, calls=tuple(made))]
    assert {turn_of(item) for item in items} == {turn}


def test_a_reply_without_text_and_calls_is_still_an_item() -> None:
    (item,) = dumped(Reply(""), [], 0)
    assert (item["type"], item["content"][0]["text"]) == ("message", "")


@pytest.mark.parametrize(
    "data", [{}, {"provider_data": None}, {"provider_data": {"model": "other"}}]
)
def test_an_item_of_another_model_has_no_turn(data: dict[str, Any]) -> None:
    assert turn_of({"role": "assistant", "content": "", **data}) is None


def test_results_and_roles_keep_their_order() -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"text": "b"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "3"},
        {"type": "message", "role": "assistant", "content": None},
    ]
    assert to_messages(items) == [
        Message("system", "Be brief."),
        Message("user", "ab"),
        Message("assistant", "", calls=(RequestedCall("1", "add", "{}"),)),
        Message("tool", "3", call_id="1"),
        Message("assistant", ""),
    ]


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"role": "robot", "content": ""}, "unknown role 'robot'; use system, developer, user"),
        ({"type": "image_generation_call"}, "type 'image_generation_call'.*function tools"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "type 'input_image'.*text parts"),
    ],
)
def test_items_that_a_text_model_cannot_read_are_refused_by_name(
    item: dict[str, Any], named: str
) -> None:
    with pytest.raises(Untrainable, match=named):
        to_messages([item])


def test_a_part_that_is_not_a_mapping_is_refused_by_its_type() -> None:
    with pytest.raises(Untrainable, match="part of type 'int'"):
        text_of([3])


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


QUESTION = {"role": "user", "content": "How warm is it?"}
MORE = {"role": "user", "content": "And tomorrow?"}
CALLS = [RequestedCall("c1", "look", "{}")]


def prompt_with(*items: Any, system: str = "Be brief.", tools: Any = ()) -> Prompt:
    return Prompt(system, items, tools, None)


class Tagged:
    """One turn that was sampled, and the items that the SDK makes of it."""

    def __init__(self, tag: int = 7, calls: Any = ()) -> None:
        self.turns = TaggedTurns()
        sample = Sample(array("i", [1]), array("f", [0.0]), Finish.STOP)
        self.turn = SampledTurn(0, "main", array("i", [5, 1]), 1, sample=sample)
        answer = Answer(Reply("7 degrees"), Finish.STOP, 11, 3)
        self.response = self.turns.response(tag, self.turn, prompt_with(QUESTION), answer, calls)
        self.items = [item.model_dump(exclude_unset=True) for item in self.response.output]


def test_a_prompt_that_only_appends_continues_the_turn() -> None:
    tagged = Tagged()
    assert tagged.turns.continued_by(prompt_with(QUESTION, *tagged.items, MORE)) is tagged.turn
    assert tagged.turns.continued_by(prompt_with(QUESTION, *tagged.items, MORE)) is tagged.turn


def test_the_items_of_a_turn_with_calls_are_one_turn() -> None:
    tagged = Tagged(calls=CALLS)
    result = {"type": "function_call_output", "call_id": "c1", "output": "7"}
    assert len(tagged.items) == 2
    assert tagged.turns.continued_by(prompt_with(QUESTION, *tagged.items, result)) is tagged.turn
    assert tagged.turns.continued_by(prompt_with(QUESTION, tagged.items[1], result)) is None


@pytest.mark.parametrize("change", ["instructions", "tools", "history", "reply", "nothing new"])
def test_a_prompt_that_changes_what_came_before_continues_nothing(change: str) -> None:
    tagged = Tagged()
    items = [QUESTION, *tagged.items, MORE]
    system, tools = "Be brief.", ()
    if change == "instructions":
        system = "Be long."
    elif change == "tools":
        tools = ({"type": "function", "function": {"name": "look"}},)
    elif change == "history":
        items[0] = MORE
    elif change == "reply":
        items[1] = {**items[1], "content": [{"type": "output_text", "text": "8 degrees"}]}
    else:
        items.pop()
    assert tagged.turns.continued_by(prompt_with(*items, system=system, tools=tools)) is None


def test_a_turn_that_the_template_changes_is_not_continued() -> None:
    tagged = Tagged()
    tagged.turn.is_hidden = True
    assert tagged.turns.continued_by(prompt_with(QUESTION, *tagged.items, MORE)) is None


def test_only_the_last_turns_are_remembered() -> None:
    tagged = Tagged(tag=0)
    answer = Answer(Reply("7 degrees"), Finish.STOP, 11, 3)
    request = prompt_with(QUESTION, *tagged.items, MORE)
    for tag in range(1, 256):
        tagged.turns.response(tag, tagged.turn, prompt_with(QUESTION), answer, [])
    assert tagged.turns.continued_by(request) is tagged.turn
    tagged.turns.response(256, tagged.turn, prompt_with(QUESTION), answer, [])
    assert tagged.turns.continued_by(request) is None


def test_the_usage_of_a_response_adds_up() -> None:
    usage = Tagged().response.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (1, 11, 3)
    assert usage.total_tokens == 14
