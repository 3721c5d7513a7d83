"""Agents of any framework are played as the SDK's are: same rows, same transcript, same endings."""

import asyncio

import pytest
from openai import APIStatusError, AsyncOpenAI, OpenAI

from sparring.contracts.rollouts import CallFailure, Ending, TokenKind
from sparring.gateway import agents
from sparring.player import Player
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.conftest import FAMILIES
from tests.gateway.playing import (
    ADD,
    SDK_AGENT,
    TOOLS,
    calls_tool,
    gateway_agent,
    loop,
    plain_play,
    play_all,
    play_one,
    plays,
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_equal_those_of_the_same_agent_on_the_sdk(codecs, family, stream):
    script = calls_tool(ADD, ("multiply", {"a": 2, "b": 7}))
    (own,) = play_all(SDK_AGENT, ScriptedPolicy(script, codecs[family]))
    rollout = play_one(plain_play(stream=stream), ScriptedPolicy(script, codecs[family]))
    assert rollout.rows == own.rows
    assert rollout.messages == own.messages
    assert rollout.tool_calls == own.tool_calls
    assert (rollout.ending, rollout.answer) == (own.ending, own.answer)
    assert rollout.turns == own.turns == 3
    assert rollout.tokens == own.tokens


def test_sampled_rows_equal_those_of_the_sdk_bit_for_bit(tiny_policy):
    """The seeds are those of the SDK's agent, and so are the lockstep batches."""
    own = play_all(SDK_AGENT, tiny_policy, plays(3), completion_tokens=48)
    ours = play_all(gateway_agent(plain_play()), tiny_policy, plays(3), completion_tokens=48)
    assert [rollout.rows for rollout in ours] == [rollout.rows for rollout in own]
    assert all(rollout.rows[0].sampled for rollout in ours)


def test_a_run_repeats_bit_for_bit(tiny_policy):
    first, second = (
        play_all(gateway_agent(plain_play()), tiny_policy, plays(4), completion_tokens=32)
        for _ in range(2)
    )
    assert [each.rows for each in first] == [each.rows for each in second]


def test_a_synchronous_agent_runs_in_a_thread(codecs):
    def play(case, session):
        with OpenAI(base_url=session.base_url, api_key=session.api_key) as client:
            completion = client.chat.completions.create(
                model="any-name", messages=session.messages, tools=TOOLS
            )
        return completion.choices[0].message.content

    rollout = play_one(play, ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    assert (rollout.answer, rollout.ending) == ("five", Ending.ANSWERED)


def test_an_agent_that_blocks_the_event_loop_fails_with_that_cause(codecs, monkeypatch):
    monkeypatch.setattr("sparring.gateway.app._BLOCKED_SECONDS", 0.2)

    async def play(case, session):
        with OpenAI(base_url=session.base_url, api_key=session.api_key) as client:
            client.chat.completions.create(model="m", messages=session.messages)

    rollout = play_one(play, ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    assert rollout.ending is Ending.NO_MODEL_CALL
    assert "write `def play`" in rollout.detail


def test_without_a_model_call_the_rollout_says_so_and_is_not_judged(codecs):
    async def play(case, session):
        return "5"

    rollout = play_one(play, ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    assert rollout.ending is Ending.NO_MODEL_CALL
    assert not rollout.ending.is_judged
    assert "session.base_url" in rollout.detail


def test_an_agent_that_fails_before_its_first_call_names_the_cause(codecs):
    async def play(case, session):
        raise ConnectionError("api.example.com is not reachable")

    rollout = play_one(play, ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    assert rollout.ending is Ending.NO_MODEL_CALL
    assert "api.example.com is not reachable" in rollout.detail


def test_an_agent_that_fails_later_is_not_the_models_fault(codecs):
    async def play(case, session):
        await plain_play()(case, session)
        raise RuntimeError("disk full")

    rollout = play_one(play, ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    assert rollout.ending is Ending.INFRASTRUCTURE_ERROR
    assert rollout.detail == "RuntimeError: disk full"


def test_an_agent_that_breaks_on_an_unknown_tool_is_judged(codecs):
    script = calls_tool(("fly", {"where": "up"}))
    rollout = play_one(plain_play(), ScriptedPolicy(script, codecs["qwen3"]))
    assert rollout.ending is Ending.UNKNOWN_TOOL
    assert rollout.tool_calls[0].failure is CallFailure.UNKNOWN_TOOL


def test_the_answer_is_what_the_agent_returns(codecs):
    async def play(case, session):
        await plain_play()(case, session)
        return {"sum": 5}

    rollout = play_one(play, ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    assert (rollout.answer, rollout.output) == ('{"sum": 5}', {"sum": 5})


def test_an_agent_that_returns_nothing_has_answered_with_its_last_reply(codecs):
    async def play(case, session):
        await plain_play()(case, session)

    rollout = play_one(play, ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    assert rollout.answer == "five"


def test_a_rollout_that_takes_too_long_ends(codecs):
    async def play(case, session):
        await plain_play()(case, session)
        await asyncio.sleep(60)

    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    rollout = play_one(play, policy, rollout_timeout=1.0)
    assert rollout.ending is Ending.ROLLOUT_DEADLINE
    assert len(rollout.rows) == 1


def test_the_turn_limit_ends_the_rollout_and_refuses_the_clients_call(codecs):
    refusals = []

    async def play(case, session):
        try:
            await plain_play()(case, session)
        except APIStatusError as error:
            refusals.append(error.status_code)
            raise

    script = calls_tool(*[ADD] * 9)
    rollout = play_one(play, ScriptedPolicy(script, codecs["qwen3"]), max_turns=3)
    assert rollout.ending is Ending.TURN_LIMIT
    assert rollout.turns == 3
    assert refusals == [410]


def test_the_token_budget_ends_the_rollout(codecs):
    policy = ScriptedPolicy(lambda _: "word " * 100, codecs["qwen3"])
    rollout = play_one(plain_play(), policy, completion_tokens=20)
    assert rollout.ending is Ending.TOKEN_BUDGET
    assert rollout.rows[0].sampled == 20


def test_a_client_that_retries_after_the_end_does_not_hold_the_rollout_up(codecs, monkeypatch):
    monkeypatch.setattr(agents, "_SECONDS_TO_END", 0.05)
    refused = []

    async def stubborn(case, session):
        async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as client:
            while True:
                try:
                    await loop(client, session.model, session.messages)
                except APIStatusError as error:
                    refused.append(error.status_code)
                    await asyncio.sleep(0.01)

    policy = ScriptedPolicy(lambda request: "word " * 500, codecs["qwen3"])
    rollout = play_one(stubborn, policy, completion_tokens=20, rollout_timeout=60.0)
    assert rollout.ending is Ending.TOKEN_BUDGET
    assert rollout.rows[0].sampled
    assert set(refused) == {410}


def test_a_session_answers_410_after_its_end(codecs):
    kept = []

    async def play(case, session):
        if kept:
            client = AsyncOpenAI(base_url=kept[0].base_url, api_key=kept[0].api_key, max_retries=0)
            with pytest.raises(APIStatusError) as caught:
                await client.chat.completions.create(model="m", messages=session.messages)
            assert caught.value.status_code == 410
        kept.append(session)
        return await plain_play()(case, session)

    agent = gateway_agent(play)
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    for rollout in [*play_all(agent, policy), *play_all(agent, policy)]:
        assert rollout.ending is Ending.ANSWERED, rollout.detail


def test_calls_with_other_instructions_are_rows_of_a_sub_agent(codecs):
    async def play(case, session):
        async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as client:
            answer = await loop(client, session.model, session.messages)
            title = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": f"Title: {answer}"}]
            )
        assert title.choices[0].message.content
        return answer

    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    rollout = play_one(play, policy)
    assert [row.agent for row in rollout.rows] == ["main", "sub-agent"]
    assert rollout.answer == "five"


def test_an_environment_may_name_the_agent_of_a_call(codecs):
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    rollout = play_one(plain_play(), policy, label=lambda call: f"with {len(call.tools)} tools")
    assert [row.agent for row in rollout.rows] == ["with 2 tools"]


def test_a_reply_that_was_never_used_is_a_discarded_row(codecs):
    replies = iter(["first try", "second try"])

    async def play(case, session):
        async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as client:
            for _ in range(2):
                answer = await loop(client, session.model, session.messages)
        return answer

    rollout = play_one(play, ScriptedPolicy(lambda _: next(replies), codecs["qwen3"]))
    assert rollout.answer == "second try"
    assert [row.is_discarded for row in rollout.rows] == [False, True]
    codec = codecs["qwen3"]
    texts = [codec.decode(row.ids[row.spans[0].length :]) for row in rollout.rows]
    assert texts == ["second try<|im_end|>", "first try<|im_end|>"]
    assert [span.kind for span in rollout.rows[0].spans] == [TokenKind.PROMPT, TokenKind.SAMPLED]


def test_notes_name_the_sampling_parameters_that_the_run_replaces(codecs):
    async def play(case, session):
        async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as client:
            await client.chat.completions.create(
                model="m", messages=session.messages, temperature=0.0, top_p=1.0
            )

    agent = gateway_agent(play)
    play_all(agent, ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    assert agent.notes(0.8) == ["the agent sets temperature to 0; rollouts are sampled with 0.8"]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ModuleNotFoundError("No module named 'langchain'"), "python = VENV"),
        (ConnectionError("refused"), "session.base_url"),
        (KeyError("city"), None),
    ],
)
def test_the_remedy_suits_what_failed_before_the_first_call(codecs, error, remedy):
    async def play(case, session):
        raise error

    rollout = play_one(play, ScriptedPolicy(calls_tool(ADD), codecs["qwen3"]))
    assert rollout.detail.startswith("the agent failed before its first model call: ")
    assert (remedy or "KeyError") in rollout.detail
    assert ("session.base_url" in rollout.detail) == (remedy == "session.base_url")


def test_whether_tools_were_offered_is_known_once_it_has_played(codecs):
    agent = gateway_agent(plain_play())
    assert not agent.has_tools
    player = Player(agent, ScriptedPolicy(calls_tool(ADD), codecs["qwen3"]))

    async def play():
        return [each async for each in player.play(plays())]

    assert all(played.offers_tools for played in asyncio.run(play()))
    assert agent.has_tools
