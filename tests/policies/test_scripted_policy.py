"""A scripted policy replaces only the model: its replies are real tokens."""

from __future__ import annotations

import asyncio
from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring.contracts.policies import (
    Finish,
    Sample,
    SampleKey,
    SampleRequest,
    Sampling,
    TokenPolicy,
    is_played_in_lockstep,
)
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.conftest import FAMILIES


def sampled(script: str | Message, codec: ChatCodec, most: int = 1024) -> Sample:
    key = SampleKey(RolloutKey(0, 0, "c", 0), 0)
    request = SampleRequest(key, array("i", [1]), Sampling(max_tokens=most))
    return asyncio.run(ScriptedPolicy(lambda _: script, codec).sample(request))


def test_a_scripted_policy_is_a_token_policy_without_lockstep_batches(
    codecs: dict[str, ChatCodec],
) -> None:
    policy = ScriptedPolicy(lambda _: "", codecs["qwen3"])
    assert isinstance(policy, TokenPolicy)
    assert not is_played_in_lockstep(policy)
    policy.join()
    policy.leave()
    assert policy.name == "scripted"


@given(text=st.text("abc <>{}ä\n", max_size=20))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_text_is_sampled_unchanged_up_to_the_end_of_its_turn(
    codecs: dict[str, ChatCodec], text: str
) -> None:
    codec = codecs["qwen3"]
    sample = sampled(text, codec)
    assert sample.ids[-1] == codec.end_of_turn
    assert codec.decode(sample.ids[:-1]) == text
    assert len(sample.logprobs) == len(sample.ids)
    assert sample.finish is Finish.STOP


@pytest.mark.parametrize("name", FAMILIES)
def test_a_message_is_written_as_the_family_writes_it(
    codecs: dict[str, ChatCodec], name: str
) -> None:
    call = RequestedCall("1", "add", '{"a": 1}')
    reply = codecs[name].parse(sampled(Message("assistant", "", calls=(call,)), codecs[name]).ids)
    assert [(each.tool, each.arguments) for each in reply.calls] == [("add", '{"a": 1}')]


def test_a_reply_longer_than_the_limit_is_cut_and_says_so(codecs: dict[str, ChatCodec]) -> None:
    whole = sampled("word " * 20, codecs["qwen3"])
    cut = sampled("word " * 20, codecs["qwen3"], most=len(whole.ids) - 1)
    assert cut.ids == whole.ids[:-1]
    assert len(cut.logprobs) == len(cut.ids)
    assert cut.finish is Finish.LENGTH
    fitting = sampled("word " * 20, codecs["qwen3"], most=len(whole.ids))
    assert (fitting.ids, fitting.finish) == (whole.ids, Finish.STOP)


def test_the_script_sees_each_request(codecs: dict[str, ChatCodec]) -> None:
    policy = ScriptedPolicy(lambda request: f"turn {request.key.turn}", codecs["qwen3"])
    requests = [
        SampleRequest(SampleKey(RolloutKey(0, 0, "c", 0), turn), array("i", [1]), Sampling())
        for turn in range(3)
    ]
    texts = [policy.codec.parse(asyncio.run(policy.sample(each)).ids).content for each in requests]
    assert texts == ["turn 0", "turn 1", "turn 2"]
