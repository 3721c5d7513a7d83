"""Anthropic's Messages: blocks become messages, and replies are what its client reads."""

import json

import pytest

from sparring.contracts.rollouts import Ending, Message, RequestedCall
from sparring.gateway.anthropic_messages import AnthropicMessages
from sparring.gateway.wire import FinishReason, ModelReply, Refused
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

FORMAT = AnthropicMessages()
HELLO = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
CALL = RequestedCall("call_1", "add", '{"a": 1}')
REPLY = ModelReply(3, "hi", "hm", (CALL,), FinishReason.TOOL_CALLS, 7, 5)
OWN_TOOLS = [
    {
        "name": tool["function"]["name"],
        "description": tool["function"]["description"],
        "input_schema": tool["function"]["parameters"],
    }
    for tool in TOOLS
]


def read(**fields):
    return FORMAT.read({**HELLO, **fields}, None).call


def test_blocks_become_messages():
    mark = {"cache_control": {"type": "ephemeral"}}
    three = [{"type": "text", "text": "3"}]
    call = read(
        system=[{"type": "text", "text": "Be", **mark}, {"type": "text", "text": "kind."}],
        messages=[
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "Wait."},
                    {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": three, **mark},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
    )  # fmt: skip
    assert call.messages == (
        Message("system", "Be\nkind."),
        Message("user", "hello"),
        Message("assistant", "Wait.", calls=(RequestedCall("c", "add", '{"a": 1}'),)),
        Message("tool", "3", call_id="c"),
        Message("user", "Go on."),
    )


def test_tools_and_choices_are_read():
    assert read(tools=OWN_TOOLS).tools == tuple(TOOLS)
    assert read(tools=OWN_TOOLS, tool_choice={"type": "any"}).tool_choice == "required"
    named = {"type": "tool", "name": "add", "disable_parallel_tool_use": True}
    call = read(tools=OWN_TOOLS, tool_choice=named)
    assert (call.tool_choice, call.parallel_tool_calls) == ("add", False)
    none = read(tools=OWN_TOOLS, tool_choice={"type": "none"})
    assert (none.tools, none.tool_choice) == (tuple(TOOLS), "none")


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]}]},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"system": [{"type": "image"}]},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"tool_choice": {"type": "magic"}},
        {"max_tokens": "9"},
        {"mcp_servers": [{"url": "x"}]},
    ],
)
def test_unsupported_fields_are_refused_in_anthropics_format(fields):
    with pytest.raises(Refused) as caught:
        read(**fields)
    error = FORMAT.error(caught.value)
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"


def test_streams_add_up_to_the_reply():
    sent = FORMAT.read({**HELLO, "stream": True}, None)
    whole = FORMAT.reply(sent, REPLY, None)
    lines = b"".join(FORMAT.events(sent, REPLY, None)).decode().strip().split("\n\n")
    events = [json.loads(line.split("data: ")[1]) for line in lines]
    assert [line.split("\n")[0] for line in lines] == [f"event: {each['type']}" for each in events]
    blocks = [each["content_block"] for each in events if each["type"] == "content_block_start"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
    deltas = [each["delta"] for each in events if each["type"] == "content_block_delta"]
    assert deltas[2]["text"] == "hi"
    assert json.loads(deltas[3]["partial_json"]) == whole["content"][2]["input"]
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"] == "tool_use"


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_client_plays_as_the_sdk_does(codecs, stream):
    anthropic = pytest.importorskip("anthropic")

    async def play(case, session):
        client = anthropic.AsyncAnthropic(
            base_url=session.anthropic_base_url, api_key=session.api_key
        )
        messages = [{"role": "user", "content": case.input}]
        options = {"model": "m", "max_tokens": 999, "system": SYSTEM, "tools": OWN_TOOLS}
        while True:
            if stream:
                async with client.messages.stream(messages=messages, **options) as stream_:
                    reply = await stream_.get_final_message()
            else:
                reply = await client.messages.create(messages=messages, **options)
            if reply.stop_reason != "tool_use":
                return reply.content[-1].text
            messages.append({"role": "assistant", "content": reply.content})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": use(block.name, json.dumps(block.input)),
                }
                for block in reply.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})

    policy = ScriptedPolicy(calls_tool(ADD), codecs["qwen3"])
    (own,) = play_all(SDK_AGENT, policy)
    rollout = play_one(play, policy)
    assert rollout.ending is Ending.ANSWERED, rollout.detail
    assert rollout.rows == own.rows
    assert rollout.messages == own.messages


def test_tokens_are_counted_without_a_call(codecs):
    async def work(session, client):
        counted = await client.post("/messages/count_tokens", json=HELLO)
        replied = await client.post("/messages", json=HELLO)
        return counted.json(), replied.json()

    rollout, (counted, replied) = in_session(codecs["qwen3"], lambda _: "five", work)
    assert counted["input_tokens"] == replied["usage"]["input_tokens"]
    assert rollout.turns == 1
