"""Responses: stored within a session, and played as the same agent on the SDK."""

import pytest
from openai import AsyncOpenAI

from sparring.contracts.rollouts import Ending
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.plain_loop import SYSTEM, use
from tests.gateway.playing import (
    ADD,
    SDK_AGENT,
    TOOLS,
    calls_tool,
    in_session,
    play_all,
    play_one,
)

OWN_TOOLS = [{"type": "function", **tool["function"], "strict": True} for tool in TOOLS]
HELLO = {"model": "m", "input": "hello"}


def agent(*, stored, stream):
    """An agent over Responses that sends everything each time, or refers to what is stored."""

    async def play(case, session):
        client = AsyncOpenAI(base_url=session.base_url, api_key=session.api_key)
        options = {"model": "m", "instructions": SYSTEM, "tools": OWN_TOOLS}
        items, previous = [{"role": "user", "content": case.input}], None
        while True:
            if stored:
                options["previous_response_id"] = previous
            if stream:
                async with client.responses.stream(input=items, **options) as events:
                    response = await events.get_final_response()
            else:
                response = await client.responses.create(input=items, **options)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            results = [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": use(call.name, call.arguments),
                }
                for call in calls
            ]
            previous = response.id
            items = (
                results
                if stored
                else [*items, *[as_sent(each) for each in response.output], *results]
            )

    return play


def as_sent(item):
    sent = item.model_dump(exclude_none=True)
    sent.pop("parsed_arguments", None)
    return sent


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_openais_client_plays_as_the_sdk_does(codecs, stored, stream):
    policy = ScriptedPolicy(calls_tool(ADD), codecs["qwen3"])
    (own,) = play_all(SDK_AGENT, policy)
    rollout = play_one(agent(stored=stored, stream=stream), policy)
    assert rollout.ending is Ending.ANSWERED, rollout.detail
    assert rollout.rows == own.rows
    assert rollout.messages == own.messages


def test_items_may_be_referred_to(codecs):
    async def work(session, client):
        first = (await client.post("/responses", json=HELLO)).json()
        items = [
            {"role": "user", "content": "hello"},
            {"type": "item_reference", "id": first["output"][-1]["id"]},
            {"role": "user", "content": "again"},
        ]
        return (await client.post("/responses", json={"model": "m", "input": items})).json()

    rollout, second = in_session(codecs["qwen3"], lambda _: "five", work)
    assert second["status"] == "completed"
    assert len(rollout.rows) == 1
    assert rollout.rows[0].spans[1].kind == rollout.rows[0].spans[3].kind == "sampled"


@pytest.mark.parametrize(
    "fields",
    [
        {"input": []},
        {"input": [{"type": "item_reference", "id": "msg_9"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        {"input": [{"type": "computer_call"}]},
        {"previous_response_id": "resp_9"},
        {"background": True},
        {"conversation": "c"},
        {"tools": [{"type": "web_search"}]},
        {"text": {"format": {"type": "xml"}}},
        {"max_output_tokens": -1},
        {"top_logprobs": 3},
        {"include": ["message.output_text.logprobs"]},
        {"include": 5},
    ],
)
def test_unsupported_fields_of_responses_are_refused(codecs, fields):
    async def work(session, client):
        refused = await client.post("/responses", json={**HELLO, **fields})
        assert (await client.post("/responses", json=HELLO)).status_code == 200
        return refused

    _, refused = in_session(codecs["qwen3"], lambda _: "five", work)
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"


def test_a_request_may_ask_that_nothing_is_stored(codecs):
    async def work(session, client):
        first = (await client.post("/responses", json={**HELLO, "store": False})).json()
        more = {**HELLO, "previous_response_id": first["id"]}
        return (await client.post("/responses", json=more)).status_code

    assert in_session(codecs["qwen3"], lambda _: "five", work)[1] == 400
