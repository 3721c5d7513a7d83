"""Prompts of calls: as the same agent on the SDK has them, with and without earlier thinking."""

from __future__ import annotations

import json

import pytest

from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.playing import SDK_AGENT, gateway_agent, plain_play, play_all

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


def script(request):
    said = [f"<think>add them</think>{CALL}", CALL, "<think>done</think>It is 5."]
    return said[request.key.turn]


@pytest.mark.parametrize(("history", "rows"), [("drop", 2), ("keep", 1)])
def test_rows_are_those_of_the_sdk_whether_thinking_is_dropped_or_kept(codecs, history, rows):
    family = family_named("qwen3").adapted(history_thinking=history)
    policy = ScriptedPolicy(script, ChatCodec(codecs["qwen3"].tokenizer, family))
    (ours,) = play_all(gateway_agent(plain_play()), policy)
    (theirs,) = play_all(SDK_AGENT, policy)
    assert len(ours.rows) == rows
    assert [row.ids for row in ours.rows] == [row.ids for row in theirs.rows]
    assert [row.spans for row in ours.rows] == [row.spans for row in theirs.rows]
    assert [(row.start, row.parent) for row in ours.rows] == [
        (row.start, row.parent) for row in theirs.rows
    ]
    assert not any(row.is_discarded for row in ours.rows)


def test_values_get_the_types_of_the_schema_that_the_client_sent(codecs):
    tags = "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>"
    codec = ChatCodec(codecs["qwen3"].tokenizer, family_named("qwen3-coder"))
    policy = ScriptedPolicy(lambda request: [tags, "2"][request.key.turn], codec)
    tools = [
        {
            "type": "function",
            "function": {
                "name": "add",
                "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
            },
        }
    ]
    (rollout,) = play_all(gateway_agent(plain_play(tools=tools)), policy)
    (message,) = [each for each in rollout.messages if each.calls]
    assert json.loads(message.calls[0].arguments) == {"a": "2"}
