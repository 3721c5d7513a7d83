"""Invariants of token rows over random transcripts, for every family."""

import asyncio
import json
from array import array

import pytest
from agents import Agent, function_tool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring.contracts.cases import Case
from sparring.contracts.limits import Limits
from sparring.contracts.policies import Sample
from sparring.contracts.rollouts import RolloutKey, TokenKind
from sparring.player import Play, Player
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.conftest import FAMILIES

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@function_tool
def echo(text: str) -> str:
    """Say it back."""
    return text


@function_tool
def explode(text: str) -> str:
    """Fail with these words."""
    raise ValueError(text)


AGENT = Agent(name="a", instructions="Play. ä", tools=[echo, explode])


def written(family: str, tool: str, argument: str) -> str:
    arguments = {"text": argument}
    if family == "llama3":
        return json.dumps({"name": tool, "parameters": arguments})
    body = json.dumps({"name": tool, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def turns(family: str):
    """What a model says while it has not answered: calls that work, fail, or do not exist."""
    tool = st.sampled_from(["echo", "explode", "nobody"])
    calls = st.builds(lambda name, said: written(family, name, said), tool, text)
    thought = st.builds(lambda thinking, said: f"<think>{thinking}</think>{said}", text, calls)
    return st.lists(
        st.one_of(calls, thought) if family in ("qwen3", "forgetful") else calls, max_size=5
    )


answers = st.one_of(text, st.just(""), st.just("<tool_call>{broken"), st.just('{"name": "echo", '))


class Remembering(ScriptedPolicy):
    """Keeps every sample and every prompt it was given."""

    def __init__(self, script, codec):
        super().__init__(script, codec)
        self.samples: list[Sample] = []
        self.prompts: list[array] = []

    async def sample(self, request):
        self.prompts.append(array("i", request.prompt))
        sample = await super().sample(request)
        logprobs = array("f", [-0.5 * n for n in range(len(sample.ids))])
        self.samples.append(Sample(sample.ids, logprobs, sample.finish))
        return self.samples[-1]


def play(codec, said, question):
    policy = Remembering(lambda request: said[request.key.turn], codec)
    player = Player(AGENT, policy, limits=Limits(completion_tokens=100_000, tool_rounds=9))
    rollout = asyncio.run(
        player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", question or "?")))
    )
    return policy, rollout


def segments(row, kind):
    found, start = [], 0
    for span in row.spans:
        if span.kind is kind:
            found.append(row.ids[start : start + span.length])
        start += span.length
    return found


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_rows_hold_exactly_what_was_sampled_and_shown(codecs, family, data):
    codec = codecs[family]
    said = [*data.draw(turns(family)), data.draw(answers)]
    policy, rollout = play(codec, said, data.draw(text))
    played = len(policy.samples)
    (row,) = rollout.rows

    # Sampled tokens = mask sum, and every sampled token has one log-probability.
    sampled = sum(len(sample.ids) for sample in policy.samples)
    assert sum(row.mask()) == sampled == len(row.logprobs) == rollout.tokens.sampled
    assert len(row.mask()) == len(row.ids) == sum(span.length for span in row.spans)

    # Zero drift: the sampled stretches are the samples, and each prompt is a beginning of the row.
    assert segments(row, TokenKind.SAMPLED) == [sample.ids for sample in policy.samples]
    assert row.logprobs == array("f", [n for sample in policy.samples for n in sample.logprobs])
    for prompt in policy.prompts:
        assert row.ids[: len(prompt)] == prompt

    # Decoding the row gives the transcript.
    observed = [codec.decode(ids) for ids in segments(row, TokenKind.OBSERVED)]
    expected = codec.decode(policy.prompts[0])
    for number, words in enumerate(said[:played]):
        expected += words + codec.family.end_of_turn
        expected += observed[number] if number < len(observed) else ""
    assert codec.decode(row.ids) == expected
    for results, call in zip(observed, rollout.tool_calls, strict=False):
        shown = json.dumps(call.result, ensure_ascii=False) if family == "llama3" else call.result
        assert shown in results

    # The body of each result is found, scaffolding left out.
    assert [body.tool for body in row.bodies] == [call.tool for call in rollout.tool_calls][
        : len(row.bodies)
    ]
    for body, call in zip(row.bodies, rollout.tool_calls, strict=False):
        shown = json.dumps(call.result, ensure_ascii=False) if family == "llama3" else call.result
        inside = codec.decode(row.ids[body.start : body.stop])
        assert inside in shown
        assert len(inside) >= len(shown) - 8
