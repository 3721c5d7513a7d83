"""Prompts of calls: as the same agent on the SDK has them, with and without earlier thinking."""

from __future__ import annotations

import json

import pytest

from sparring.contracts.rollouts import Message, RequestedCall
from sparring.gateway.contexts import all_kept
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.playing import SDK_AGENT, gateway_agent, plain_play, play_all
from tests.policies.family_codecs import codec_of

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


@pytest.mark.parametrize("name", ["gpt-oss", "gemma4"])
def test_results_carry_the_names_of_their_tools_as_on_the_sdk(name):
    call = RequestedCall("c", "add", '{"a": 2, "b": 3}')
    turns = [Message("assistant", "", calls=(call,)), Message("assistant", "It is 5.")]
    policy = ScriptedPolicy(lambda request: turns[request.key.turn], codec_of(name))
    (ours,) = play_all(gateway_agent(plain_play()), policy)
    (theirs,) = play_all(SDK_AGENT, policy)
    assert [row.ids for row in ours.rows] == [row.ids for row in theirs.rows]
    (row,) = ours.rows
    assert "add" in policy.codec.decode(row.ids).rpartition("It is 5.")[0][-120:]


def test_an_answer_that_is_rewritten_later_cannot_be_spliced():
    answer = Message("assistant", "It is 5.")
    assert all_kept([Message("user", "?"), answer], codec_of("gemma4"))
    assert not all_kept([Message("user", "?"), answer], codec_of("gpt-oss"))
