"""The agent that is shipped is the one that was trained: same tokens before every turn."""

import asyncio
import json
from array import array

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring import tool
from sparring.contracts.cases import Case
from sparring.contracts.limits import Limits
from sparring.contracts.policies import Sampling
from sparring.contracts.rollouts import Message, RolloutKey
from sparring.player import Play, Player
from sparring.player.policy_model import PolicyModel
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.conftest import FAMILIES
from tests.rollouts import call

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


class Recording(ScriptedPolicy):
    """Says these texts in turn, and keeps the prompt of each."""

    def __init__(self, said, codec):
        self.prompts = []
        texts = iter(said)
        super().__init__(lambda _: next(texts, "Done."), codec)

    async def sample(self, request):
        self.prompts.append(array("i", request.prompt))
        return await super().sample(request)


@function_tool
def echo(text: str) -> str:
    """Say it back."""
    return text


@function_tool
def explode(text: str) -> str:
    """Fail with these words."""
    raise ValueError(text)


def crew() -> Agent:
    clerk = Agent(name="clerk", instructions="File it.", tools=[echo])
    writer = Agent(name="desk", instructions="Sort it. ä", tools=[echo, explode], handoffs=[clerk])
    clerk.handoffs.append(writer)
    return writer


def written(family, name, arguments, spaces):
    body = json.dumps(arguments, ensure_ascii=False, separators=spaces)
    key = "parameters" if family == "llama3" else "arguments"
    text = f'{{"name":  {json.dumps(name)}, "{key}":{body}}}'
    return text if family == "llama3" else f"<tool_call>\n{text}\n</tool_call>"


def turns(family):
    """Calls that work, fail, do not exist or hand over, with odd spaces; some after thinking."""
    names = ["echo", "explode", "nobody", "transfer_to_clerk", "transfer_to_desk"]
    spaces = st.sampled_from([(",", ":"), (" , ", " : "), (",  ", ":\n")])
    made = st.builds(
        lambda name, text, spaced: written(
            family, name, {} if name.startswith("transfer") else {"text": text}, spaced
        ),
        st.sampled_from(names),
        texts,
        spaces,
    )
    thought = st.builds(lambda why, said: f"<think>{why}</think>{said}", texts, made)
    return st.lists(
        st.one_of(made, thought) if family in ("qwen3", "forgetful") else made, max_size=6
    )


def played_prompts(said, codec):
    policy = Recording(said, codec)
    player = Player(crew(), policy, limits=Limits(completion_tokens=100_000, tool_rounds=9))
    rollout = asyncio.run(player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "sort this"))))
    return policy.prompts, rollout


def shipped_prompts(said, codec):
    policy = Recording(said, codec)
    agent = crew()
    agent.model = PolicyModel(policy, Sampling(max_tokens=10_000))
    quiet = RunConfig(tracing_disabled=True)
    asyncio.run(Runner.run(agent, "sort this", max_turns=10, run_config=quiet))
    return policy.prompts


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_shipped_agent_reads_the_very_tokens_that_it_was_trained_on(codecs, family, data):
    said = [*data.draw(turns(family)), "Filed."]
    played, rollout = played_prompts(said, codecs[family])
    assert shipped_prompts(said, codecs[family])[: len(played)] == played
    assert rollout.ending.value in ("answered", "turn_limit")


def test_a_conversation_goes_on_from_its_own_tokens(codecs):
    codec = codecs["qwen3"]
    policy = Recording(["<think>hm</think>First.", "Second."], codec)
    agent = Agent(name="a", model=PolicyModel(policy, Sampling()))

    async def talk():
        first = await Runner.run(agent, "one", run_config=RunConfig(tracing_disabled=True))
        said = [*first.to_input_list(), {"role": "user", "content": "two"}]
        await Runner.run(agent, said, run_config=RunConfig(tracing_disabled=True))

    asyncio.run(talk())
    assert "<think>hm</think>First." in codec.decode(policy.prompts[1])


def test_thinking_is_dropped_from_what_later_turns_read_unless_it_is_kept(codecs):
    codec = ChatCodec(codecs["qwen3"].tokenizer, family_named("qwen3"))
    policy = Recording(["<think>hm</think>First.", "Second."], codec)
    agent = Agent(name="a", model=PolicyModel(policy, Sampling()))

    async def talk():
        first = await Runner.run(agent, "one", run_config=RunConfig(tracing_disabled=True))
        said = [*first.to_input_list(), {"role": "user", "content": "two"}]
        await Runner.run(agent, said, run_config=RunConfig(tracing_disabled=True))

    asyncio.run(talk())
    messages = [Message("user", "one"), Message("assistant", "First."), Message("user", "two")]
    assert policy.prompts[1] == codec.encode_prompt(messages, []).ids


def test_a_conversation_may_go_on_twice_from_the_same_turn(codecs):
    codec = codecs["qwen3"]
    policy = Recording(["<think>hm</think>First.", "Left.", "Right."], codec)
    agent = Agent(name="a", model=PolicyModel(policy, Sampling()))

    async def talk():
        first = await Runner.run(agent, "one", run_config=RunConfig(tracing_disabled=True))
        for way in ("left", "right"):
            said = [*first.to_input_list(), {"role": "user", "content": way}]
            await Runner.run(agent, said, run_config=RunConfig(tracing_disabled=True))

    asyncio.run(talk())
    left, right = (codec.decode(prompt) for prompt in policy.prompts[1:])
    assert "<think>hm</think>First." in left
    assert right == left.replace("left", "right")


def test_a_turn_that_was_cut_off_is_closed_before_the_next_message(codecs):
    codec = codecs["qwen3"]
    policy = Recording(["one two three four five six", "Fine."], codec)
    agent = Agent(name="a", model=PolicyModel(policy, Sampling(max_tokens=4)))

    async def talk():
        first = await Runner.run(agent, "one", run_config=RunConfig(tracing_disabled=True))
        said = [*first.to_input_list(), {"role": "user", "content": "two"}]
        await Runner.run(agent, said, run_config=RunConfig(tracing_disabled=True))

    asyncio.run(talk())
    ids, start = policy.prompts[1], len(policy.prompts[0])
    assert ids[start + 4] == codec.end_of_turn
    assert codec.end_of_turn not in ids[start : start + 4]


def test_an_edited_history_is_read_as_it_now_stands(codecs):
    codec = codecs["qwen3"]
    policy = Recording(["The code is sesame.", "Fine."], codec)
    agent = Agent(name="a", model=PolicyModel(policy, Sampling()))

    async def talk():
        first = await Runner.run(agent, "one", run_config=RunConfig(tracing_disabled=True))
        said = json.loads(json.dumps(first.to_input_list()).replace("sesame", "****"))
        await Runner.run(
            agent,
            [*said, {"role": "user", "content": "two"}],
            run_config=RunConfig(tracing_disabled=True),
        )

    asyncio.run(talk())
    assert "sesame" not in codec.decode(policy.prompts[1])
    assert "The code is ****." in codec.decode(policy.prompts[1])


class Shop:
    @tool
    def stock(self) -> str:
        """How many there are."""
        return "seven"


def test_every_agent_has_the_tools_of_the_context_it_runs_in(codecs):
    policy = Recording([call("transfer_to_clerk"), call("stock"), "Seven."], codecs["qwen3"])
    agent = crew()
    agent.model = PolicyModel(policy, Sampling())
    quiet = RunConfig(tracing_disabled=True)
    result = asyncio.run(Runner.run(agent, "how many?", context=Shop(), run_config=quiet))
    assert result.final_output == "Seven."
    assert "seven" in codecs["qwen3"].decode(policy.prompts[2])


def test_the_shipped_agent_can_be_streamed(codecs):
    policy = Recording([call("echo", text="hi"), "Done so."], codecs["qwen3"])
    agent = Agent(name="a", tools=[echo], model=PolicyModel(policy, Sampling()))

    async def stream():
        result = Runner.run_streamed(agent, "go", run_config=RunConfig(tracing_disabled=True))
        kinds = [event.type async for event in result.stream_events()]
        return kinds, result

    kinds, result = asyncio.run(stream())
    assert result.final_output == "Done so."
    assert "run_item_stream_event" in kinds
    assert result.context_wrapper.usage.output_tokens > 0
