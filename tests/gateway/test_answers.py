"""What a policy is asked, and what is made of its answer."""

from __future__ import annotations

import asyncio
from array import array

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import (
    ChatReply,
    Finish,
    Reply,
    Sample,
    SampleKey,
    Sampling,
)
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey
from sparring.gateway.answers import ask, finish_reason, first_stop, sample
from sparring.gateway.calls import FinishReason, ModelCall
from sparring.gateway.contexts import Context
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.playing import TOOLS

CALL = ModelCall((Message("user", "What is 2 + 3?"),), TOOLS, max_tokens=7)
KEY = SampleKey(RolloutKey(0, 0, "c", 0), 0, 0)
SAMPLING = Sampling(0.8, 64)


def test_a_sampled_reply_begins_where_its_prompt_ends(codecs):
    prompt = codecs["smollm2"].encode_prompt(CALL.messages, TOOLS).ids
    context = Context(array("i", prompt))
    policy = ScriptedPolicy(lambda _: "It is 5.", codecs["smollm2"])
    got = asyncio.run(sample(policy, CALL, context, KEY, SAMPLING))
    assert got.reply.content == "It is 5."
    assert (got.start, got.prompt_tokens) == (len(prompt), len(prompt))
    assert context.tokens == array("i", prompt) + got.sample.ids
    assert got.sampled_tokens == len(got.sample.ids)


@pytest.mark.parametrize(("ids", "logprobs"), [([], []), ([1, 2], [-0.5]), ([1], [-0.5, -0.5])])
def test_a_token_without_a_log_probability_is_a_fault_of_the_policy(codecs, ids, logprobs):
    class Faulty(ScriptedPolicy):
        async def sample(self, request):
            return Sample(array("i", ids), array("f", logprobs), Finish.STOP)

    context = Context(array("i", [1, 2, 3]))
    policy = Faulty(lambda _: "", codecs["smollm2"])
    with pytest.raises(InfrastructureError, match="each sampled token needs one"):
        asyncio.run(sample(policy, CALL, context, KEY, SAMPLING))
    assert context.tokens == array("i", [1, 2, 3]), "the context stays as it was"


def test_a_chat_policy_gets_the_whole_call_and_its_reply_has_no_tokens():
    class Chat:
        name = "chat"

        async def reply(self, request):
            self.request = request
            return ChatReply(Reply("It is 5."), Finish.STOP, 11, 4)

    policy = Chat()
    got = asyncio.run(ask(policy, CALL, KEY, SAMPLING))
    asked = policy.request
    assert (asked.messages, asked.tools, asked.sampling) == (CALL.messages, TOOLS, SAMPLING)
    assert (got.reply.content, got.prompt_tokens, got.sampled_tokens) == ("It is 5.", 11, 4)
    assert not got.sample.ids


def test_the_stop_sequence_that_comes_first_counts():
    assert first_stop("one, two; three", (";", ",")) == ","
    assert first_stop("one", (";", "")) == ""


def test_a_reply_that_was_cut_off_is_said_to_be_so_even_with_a_call():
    calls = (RequestedCall("c", "add", "{}"),)
    assert finish_reason(calls, is_cut_off=True) is FinishReason.LENGTH
    assert finish_reason(calls, is_cut_off=False) is FinishReason.TOOL_CALLS
    assert finish_reason((), is_cut_off=False) is FinishReason.STOP
