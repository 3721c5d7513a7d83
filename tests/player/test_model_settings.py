"""An agent's model settings hold in play, and training refuses those it cannot learn under."""

import asyncio

import pytest
from agents import Agent, AgentHooks, ModelSettings, function_tool

from sparring.contracts.cases import Case
from sparring.contracts.errors import Untrainable
from sparring.contracts.rollouts import CallFailure, Ending, RolloutKey, TokenKind
from sparring.contracts.specs import EndpointSpec
from sparring.learning.rows import RowRules, learning_rollout
from sparring.player import Play, Player
from sparring.player.trainability import refuse_untrainable
from sparring.policies.endpoint_policy import EndpointPolicy
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.conftest import FAMILIES
from tests.rollouts import call, play_script
from tests.servers import completion


@pytest.fixture
def codec(codecs):
    return codecs["qwen3"]


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Watching(ScriptedPolicy):
    def __init__(self, said, codec):
        texts = iter(said)
        super().__init__(lambda _: next(texts, ""), codec)
        self.requests = []

    async def sample(self, request):
        self.requests.append(request)
        return await super().sample(request)


def play(agent, policy, **options):
    player = Player(agent, policy, **options)
    return asyncio.run(player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "question"))))


def test_samplers_of_the_agent_go_before_those_of_the_run(codec):
    settings = ModelSettings(
        temperature=0.1, top_p=0.5, frequency_penalty=0.2, presence_penalty=0.3, max_tokens=7
    )
    policy = Watching(["ok"], codec)
    play(Agent(name="a", model_settings=settings), policy, temperature=0.8)
    sampling = policy.requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.1, 0.5, 7)
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.2, 0.3)


def test_a_turn_that_reaches_max_tokens_says_whose_limit_it_was(codec):
    agent = Agent(name="a", model_settings=ModelSettings(max_tokens=5))
    played = play_script(agent, ["word " * 50], codec)
    assert played.ending is Ending.TOKEN_BUDGET
    assert "max_tokens of 5" in played.detail


@pytest.mark.parametrize("family", FAMILIES)
def test_a_forced_call_is_opened_for_the_model_and_not_learned(codecs, family):
    codec = codecs[family]
    agent = Agent(name="a", tools=[add], model_settings=ModelSettings(tool_choice="add"))
    closing = '{"a": 1, "b": 2}}' + ("" if family == "llama3" else "\n</tool_call>")
    played = play_script(agent, [closing, "3"], codec)
    assert [(c.tool, c.result) for c in played.tool_calls] == [("add", "3")]
    (row,) = played.rows
    kinds = [span.kind for span in row.spans]
    assert kinds[:3] == [TokenKind.PROMPT, TokenKind.OBSERVED, TokenKind.SAMPLED]
    opened = codec.decode(row.ids[row.spans[0].length :][: row.spans[1].length])
    assert opened.endswith('"add", "parameters": ' if family == "llama3" else '"arguments": ')
    vocabulary = len(codec.tokenizer)
    rules = RowRules(codec.end_of_turn, vocabulary)
    learned = learning_rollout(played, rules, is_demonstrated=True)
    assert sum(learned.rows[0].mask) == row.sampled


def test_a_required_call_leaves_the_choice_of_the_tool(codec):
    agent = Agent(name="a", tools=[add], model_settings=ModelSettings(tool_choice="required"))
    said = ['add", "arguments": {"a": 1, "b": 2}}\n</tool_call>', "3"]
    played = play_script(agent, said, codec)
    assert played.tool_calls[0].result == "3"
    assert played.answer == "3"  # the SDK asks for a call only once


def test_a_choice_that_cannot_be_forced_is_named(codec):
    agent = Agent(name="a", tools=[add], model_settings=ModelSettings(tool_choice="none"))
    played = play_script(agent, ["3"], codec)
    assert played.ending is Ending.INFRASTRUCTURE_ERROR
    assert "tool_choice='none'" in played.detail


def test_without_parallel_calls_only_the_first_is_made(codec):
    agent = Agent(name="a", tools=[add], model_settings=ModelSettings(parallel_tool_calls=False))
    both = call("add", a=1, b=2) + "\n" + call("add", a=3, b=4)
    played = play_script(agent, [both, "3"], codec)
    first, second = played.tool_calls
    assert (first.result, first.failure) == ("3", None)
    assert second.failure is CallFailure.REFUSED
    assert "one call at a time" in second.result


def test_an_endpoint_gets_the_agents_settings(chat_server):
    chat_server.answer = lambda _: (200, completion("hello"))
    settings = ModelSettings(
        temperature=0.1, top_p=0.5, max_tokens=9, tool_choice="required", parallel_tool_calls=False
    )
    agent = Agent(name="a", tools=[add], model_settings=settings)
    play(agent, EndpointPolicy([EndpointSpec(base_url=chat_server.url, model="m")]))
    sent = chat_server.requests[0]
    assert (sent["temperature"], sent["top_p"], sent["max_tokens"]) == (0.1, 0.5, 9)
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("required", False)


def test_hooks_of_an_agent_see_what_its_turns_used(codec):
    seen = []

    class Own(AgentHooks):
        async def on_llm_end(self, context, agent, response):
            seen.append((response.usage.input_tokens, response.usage.output_tokens))

    play_script(Agent(name="a", hooks=Own()), ["hello there"], codec)
    ((prompt, sampled),) = seen
    assert prompt > 0
    assert sampled > 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (ModelSettings(temperature=0.1), "temperature=0.1"),
        (ModelSettings(top_p=0.9), "top_p=0.9"),
        (ModelSettings(frequency_penalty=1.0), "frequency_penalty=1"),
        (ModelSettings(presence_penalty=1.0), "presence_penalty=1"),
    ],
)
def test_training_refuses_settings_it_cannot_learn_under(settings, named):
    agent = Agent(name="clerk", model_settings=settings)
    with pytest.raises(Untrainable, match=named) as refused:
        refuse_untrainable(agent, 0.8)
    assert "clerk" in str(refused.value)


def test_training_takes_settings_that_change_nothing():
    settings = ModelSettings(temperature=0.8, top_p=1.0, max_tokens=50, tool_choice="required")
    refuse_untrainable(Agent(name="a", model_settings=settings), 0.8)
