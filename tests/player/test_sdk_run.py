"""One rollout of an SDK agent: exceptions of the SDK become endings, and a user may go on."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

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
from sparring.contracts.rollouts import (
    Ending,
    Message,
    RequestedCall,
    Rollout,
    RolloutKey,
    TokenKind,
)
from sparring.contracts.specs import Limits
from sparring.player import Play, Player
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.threads import run_in_own_loop
from tests.policies.family_codecs import codec_of
from tests.rollouts import call


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
    rollout = play(Agent(name="a", tools=[look]), codec, looking(), max_turns=3)
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


def test_user_messages_end_when_the_user_returns_none(codec):
    replies = iter(["And the desk?", None])

    def user(case, world, conversation):
        assert world == "shop"
        assert conversation[-1].role == "assistant"
        return next(replies)

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


@function_tool
def look_at(what: str) -> str:
    """Look at something."""
    return f"a {what}"


def talk(
    agent: Agent[Any], replies: list[str], user: Any, codec: ChatCodec, **limits: Any
) -> Rollout:
    policy = ScriptedPolicy(lambda request: replies[request.key.turn], codec)
    player = Player(agent, policy, limits=Limits(**limits), user=user)
    case = Case("c", "Hello.", expected="bye")
    return asyncio.run(player.play_one(Play(RolloutKey(0, 0, "c", 0), case)))


def answering(*replies: str | None) -> Any:
    remaining = iter(replies)

    async def user(case: Case, world: Any, conversation: Any) -> str | None:
        assert conversation[-1].role == "assistant"
        return next(remaining)

    return user


def test_a_conversation_ends_when_the_user_returns_none(codec: ChatCodec) -> None:
    replies = ["Who is there?", call("look_at", what="cat"), "I see a cat.", "Bye."]
    user = answering("Look outside.", "Thanks.", None)
    played = talk(Agent(name="a", tools=[look_at]), replies, user, codec)
    assert (played.ending, played.answer, played.turns) == (Ending.ANSWERED, "Bye.", 4)
    roles = [(each.role, each.content) for each in played.messages if each.role == "user"]
    assert roles == [("user", "Hello."), ("user", "Look outside."), ("user", "Thanks.")]
    (row,) = played.rows
    kinds = [span.kind for span in row.spans]
    assert kinds == [TokenKind.PROMPT, *[TokenKind.SAMPLED, TokenKind.OBSERVED] * 3, "sampled"]
    text = codec.decode(row.ids)
    assert text.count("Look outside.") == text.count("Thanks.") == 1


def test_a_user_may_be_a_plain_function_that_sees_world_and_conversation(codec: ChatCodec) -> None:
    def user(case: Case, world: Any, conversation: Any) -> str | None:
        assert world is None
        return "More." if len(conversation) < 4 else None

    played = talk(Agent(name="a"), ["one", "two"], user, codec)
    assert [each.content for each in played.messages] == ["Hello.", "one", "More.", "two"]


def test_after_a_handoff_the_user_talks_to_the_specialist(codec: ChatCodec) -> None:
    clerk = Agent(name="clerk", instructions="Serve.")
    writer = Agent(name="desk", instructions="Hand off.", handoffs=[clerk])
    replies = [call("transfer_to_clerk"), "Yes?", "Done."]
    played = talk(writer, replies, answering("A stamp.", None), codec)
    assert [row.agent for row in played.rows] == ["desk", "clerk"]
    assert [span.kind for span in played.rows[1].spans] == [
        "prompt", "sampled", "observed", "sampled",
    ]  # fmt: skip


def test_a_user_who_never_stops_ends_the_rollout_at_the_limit(codec: ChatCodec) -> None:
    replies = ["one", "two", "three", "four"]
    played = talk(Agent(name="a"), replies, answering(*["More."] * 9), codec, user_messages=2)
    assert played.ending is Ending.TURN_LIMIT
    assert "did not end within 2 user messages" in played.detail
    assert played.answer == "three"


def slow(*_: Any) -> str:
    time.sleep(0.3)
    return "late"


async def raising(*_: Any) -> str:
    raise ConnectionError("the judge is away")


async def timing_out(*_: Any) -> str:
    raise TimeoutError("of its own")


@pytest.mark.parametrize(
    ("user", "detail"),
    [
        (slow, "user() did not answer within 0.1 s"),
        (raising, "the judge is away"),
        (timing_out, "of its own"),
        (lambda *_: 3, "user() returned a int"),
    ],
)
def test_a_user_that_breaks_leaves_the_rollout_unscored_with_the_cause(
    codec: ChatCodec, user: Any, detail: str
) -> None:
    played = talk(Agent(name="a"), ["hi"] * 3, user, codec, tool_timeout=0.1)
    assert played.ending is Ending.INFRASTRUCTURE_ERROR
    assert detail in played.detail


@pytest.mark.parametrize(("name", "rows"), [("gpt-oss", 2), ("gemma4", 1)])
def test_an_answer_that_ends_otherwise_in_the_past_starts_a_new_row(name: str, rows: int) -> None:
    """gpt-oss ends an answer by <|return|>, and reads <|end|> in its place later."""
    codec = codec_of(name)
    turns = [
        Message("assistant", "", calls=(RequestedCall("1", "look_at", '{"what": "cat"}'),)),
        Message("assistant", "I see a cat."),
        Message("assistant", "Bye."),
    ]
    policy = ScriptedPolicy(lambda request: turns[request.key.turn], codec)
    player = Player(Agent(name="a", tools=[look_at]), policy, user=answering("Thanks.", None))
    played = asyncio.run(player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "Hello."))))
    assert (played.ending, played.answer) == (Ending.ANSWERED, "Bye.")
    assert [row.start for row in played.rows] == ["first", "history"][:rows]
    assert sum(row.sampled for row in played.rows) == played.tokens.sampled
    rendered = codec.decode(codec.encode_prompt(played.messages[:-1], []).ids)
    last = codec.decode(played.rows[-1].ids)
    assert rendered[rendered.index("Hello.") :] in last
    assert "a cat" in rendered
