"""One rollout of an SDK agent: exceptions of the SDK become endings, and a user may go on."""

from __future__ import annotations

import json

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from pydantic import BaseModel

from sparring.contracts.cases import Case
from sparring.contracts.limits import Limits
from sparring.contracts.rollouts import Ending, Message, RequestedCall, RolloutKey
from sparring.player import Play, Player
from sparring.player.loops import run_in_own_loop
from sparring.policies.scripted_policy import ScriptedPolicy


@function_tool
def look(item: str) -> str:
    """Look something up."""
    return f"{item} found"


class Answer(BaseModel):
    number: int


def play(agent, codec, *replies, user=None, context=None, **limits):
    """The rollout of an agent whose model replies so, the last one again and again."""
    player = Player(
        agent,
        ScriptedPolicy(lambda request: replies[min(request.key.turn, len(replies) - 1)], codec),
        limits=Limits(**limits),
        user=user,
        context=context,
    )
    key = RolloutKey(0, 0, "c", 0)
    return run_in_own_loop(player.play_one(Play(key, Case("c", "Where is it?"))))


def looking(item="lamp"):
    return Message("assistant", "", calls=(RequestedCall("x", "look", json.dumps({"item": item})),))


@pytest.fixture
def codec(codecs):
    return codecs["qwen3"]


def test_an_answer_ends_the_rollout(codec):
    rollout = play(Agent(name="a", tools=[look]), codec, looking(), "here")
    assert (rollout.ending, rollout.answer, rollout.output) == (Ending.ANSWERED, "here", "here")
    assert rollout.tool_calls[0].result == "lamp found"
    assert len(rollout.rows) == 1


def test_a_model_that_never_answers_reaches_the_turn_limit(codec):
    rollout = play(Agent(name="a", tools=[look]), codec, looking(), tool_rounds=2)
    assert rollout.ending is Ending.TURN_LIMIT
    assert rollout.detail == "no answer within 3 turns"


def test_a_tripped_guardrail_is_named(codec):
    def trip(*_):
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    before = Agent(name="a", input_guardrails=[input_guardrail(trip, name="polite")])
    after = Agent(name="a", output_guardrails=[output_guardrail(trip, name="short")])
    found = [play(agent, codec, "here") for agent in (before, after)]
    assert [(each.ending, each.detail) for each in found] == [
        (Ending.INPUT_GUARDRAIL, "polite"),
        (Ending.OUTPUT_GUARDRAIL, "short"),
    ]


def test_an_output_of_another_type_is_invalid(codec):
    agent = Agent(name="a", output_type=Answer)
    assert play(agent, codec, '{"number": 3}').output == Answer(number=3)
    assert play(agent, codec, "three").ending is Ending.INVALID_OUTPUT


def test_a_tools_result_may_be_the_answer(codec):
    agent = Agent(
        name="a",
        tools=[look],
        tool_use_behavior="stop_on_first_tool",
        model_settings=ModelSettings(),
    )
    assert play(agent, codec, looking()).answer == "lamp found"


def test_a_user_goes_on_until_nothing_is_left_to_say(codec):
    said = iter(["And the desk?", None])

    def user(case, world, conversation):
        assert world == "shop"
        assert conversation[-1].role == "assistant"
        return next(said)

    agent = Agent(name="a")
    rollout = play(agent, codec, "here", "there", user=user, context=lambda: "shop")
    assert (rollout.ending, rollout.answer) == (Ending.ANSWERED, "there")
    texts = [message.content for message in rollout.messages if message.role == "user"]
    assert texts == ["Where is it?", "And the desk?"]
    assert len(rollout.rows) == 1


def test_a_user_who_never_ends_is_stopped(codec):
    rollout = play(Agent(name="a"), codec, "here", user=lambda *_: "And?", user_messages=2)
    assert rollout.ending is Ending.TURN_LIMIT
    assert rollout.detail == "the conversation did not end within 2 user messages"
