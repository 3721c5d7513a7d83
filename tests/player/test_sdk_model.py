"""The model that the SDK sees records every turn in the episode, and ends it with a cause."""

from __future__ import annotations

import asyncio
import json
import re
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from agents import (
    Agent,
    AgentHooks,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    RunConfig,
    Runner,
    SQLiteSession,
    Tool,
    function_tool,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring import tool
from sparring.contracts.cases import Case
from sparring.contracts.errors import Untrainable
from sparring.contracts.policies import SampleRequest, Sampling
from sparring.contracts.rollouts import CallFailure, Ending, Message, Rollout, RolloutKey, TokenKind
from sparring.contracts.specs import EndpointSpec, Limits
from sparring.learning.rows import RowRules, learning_rollout
from sparring.player import Play, Player
from sparring.player.episode import Episode, EpisodeOver
from sparring.player.recorder import Recorder
from sparring.player.sdk_model import EpisodeModel, PolicyModel, common_run_config
from sparring.player.tools import ToolStage
from sparring.player.trainability import refuse_untrainable
from sparring.policies.codec import ChatCodec
from sparring.policies.endpoint_policy import EndpointPolicy
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.threads import DaemonThreads
from tests.conftest import FAMILIES
from tests.rollouts import call, play_script
from tests.servers import completion

ADD = call("add", a=1, b=2)


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Played:
    """An episode whose model says these texts, one per turn."""

    def __init__(self, codec: ChatCodec, script: Callable[[SampleRequest], str]) -> None:
        limits = Limits(completion_tokens=200)
        self.episode = Episode(RolloutKey(0, 0, "c", 0), Case("c", "question"), limits)
        recorder = Recorder(ScriptedPolicy(script, codec), self.episode)
        stage = ToolStage(limits, DaemonThreads(1), codec)
        self.model = EpisodeModel(self.episode, recorder, stage, 1.0)

    def turn(self, settings: ModelSettings | None = None) -> ModelResponse:
        tools: list[Tool] = [add]
        return asyncio.run(
            self.model.get_response(
                "Be brief.", "question", settings or ModelSettings(), tools, None, [],
                ModelTracing.DISABLED, previous_response_id=None, conversation_id=None, prompt=None,
            )
        )  # fmt: skip

    def rollout(self) -> Rollout:
        return self.episode.finish([], None, None)


@pytest.fixture
def saying(codecs: dict[str, ChatCodec]) -> Callable[..., Played]:
    def made(*replies: str) -> Played:
        return Played(codecs["qwen3"], lambda request: replies[request.key.turn])

    return made


def test_a_turn_is_recorded_and_returned_with_the_ids_of_the_episode(saying: Any) -> None:
    played = saying(ADD)
    response = played.turn()
    rollout = played.rollout()
    (made,) = rollout.tool_calls
    assert [item.call_id for item in response.output] == [made.id]
    assert [message.role for message in rollout.messages] == ["user", "assistant"]
    assert rollout.messages[0] == Message("user", "question")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (
        rollout.tokens.prompt,
        rollout.tokens.sampled,
    )


def test_after_its_ending_no_turn_is_played(saying: Any) -> None:
    played = saying("never reached")
    played.episode.end(Ending.TURN_LIMIT)
    with pytest.raises(EpisodeOver):
        played.turn()
    assert played.rollout().turns == 0


@pytest.mark.parametrize(
    ("settings", "detail"),
    [
        (ModelSettings(), "the answer was cut off"),
        (ModelSettings(max_tokens=9), "a turn was cut off at the agent's max_tokens of 9"),
    ],
)
def test_a_turn_that_is_cut_off_ends_the_rollout_and_says_whose_limit_it_was(
    saying: Any, settings: ModelSettings, detail: str
) -> None:
    played = saying("word " * 300)
    with pytest.raises(EpisodeOver):
        played.turn(settings)
    assert played.rollout().ending is Ending.TOKEN_BUDGET
    assert played.rollout().detail == detail
    assert played.rollout().answer.startswith("word word")


def test_a_policy_that_breaks_is_an_infrastructure_error_with_its_cause(
    codecs: dict[str, ChatCodec],
) -> None:
    def broken(_: SampleRequest) -> str:
        raise ConnectionError("no route")

    played = Played(codecs["qwen3"], broken)
    with pytest.raises(EpisodeOver) as raised:
        played.turn()
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert played.rollout().ending is Ending.INFRASTRUCTURE_ERROR
    assert played.rollout().detail == "ConnectionError: no route"


def test_a_call_that_cannot_be_read_ends_the_rollout_but_not_from_a_nested_agent(
    saying: Any,
) -> None:
    broken = "<tool_call>\n{broken\n</tool_call>"
    played = saying(broken, broken)
    with played.model.nested():
        played.turn()
    assert not played.episode.is_over
    played.turn()
    assert played.rollout().ending is Ending.UNPARSABLE_CALL
    assert played.rollout().detail


def test_without_parallel_calls_all_but_the_first_are_refused(saying: Any) -> None:
    played = saying(f"{ADD}\n{ADD}\n{ADD}")
    response = played.turn(ModelSettings(parallel_tool_calls=False))
    refusals = [played.episode.refusal_of(item.call_id) for item in response.output]
    assert refusals[0] is None
    assert [str(reason) for reason in refusals[1:]] == [
        "Not done: one call at a time. Call it again."
    ] * 2


def test_a_run_config_is_copied_and_keeps_what_the_user_set(saying: Any) -> None:
    model = saying().model
    given = RunConfig(workflow_name="mine", tool_not_found_behavior="raise_error")
    config = model.run_config(given)
    assert (config.model, config.workflow_name, config.tracing_disabled) == (model, "mine", True)
    assert config.tool_not_found_behavior == "return_error_to_model"
    assert (given.model, given.tracing_disabled) == (None, False)
    assert model.run_config(None).tool_execution == common_run_config().tool_execution


def test_a_nested_run_with_another_model_ends_the_rollout_with_the_reason(saying: Any) -> None:
    played = saying()
    with pytest.raises(EpisodeOver):
        played.model.refuse_escape("it names another model")
    assert played.rollout().ending is Ending.INFRASTRUCTURE_ERROR
    assert played.rollout().detail == "it names another model"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


class Recording(ScriptedPolicy):
    """Says these texts in turn, and keeps the prompt of each."""

    def __init__(self, replies, codec):
        self.prompts = []
        texts = iter(replies)
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
    thought = st.builds(lambda why, reply: f"<think>{why}</think>{reply}", texts, made)
    return st.lists(
        st.one_of(made, thought) if family in ("qwen3", "forgetful") else made, max_size=6
    )


SHOWN = (
    {"role": "user", "content": "sort that"},
    {"type": "function_call", "call_id": "e", "name": "echo", "arguments": '{"text": "that"}'},
    {"type": "function_call_output", "call_id": "e", "output": "that"},
    {"role": "assistant", "content": "Sorted."},
)


def played_prompts(replies, codec):
    policy = Recording(replies, codec)
    limits = Limits(completion_tokens=100_000, max_turns=10)
    player = Player(crew(), policy, limits=limits, examples=SHOWN)
    rollout = asyncio.run(player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "sort this"))))
    return policy.prompts, rollout


def shipped_prompts(replies, codec):
    policy = Recording(replies, codec)
    agent = crew()
    agent.model = PolicyModel(policy, Sampling(max_tokens=10_000), examples=SHOWN)
    quiet = RunConfig(tracing_disabled=True)
    asyncio.run(Runner.run(agent, "sort this", max_turns=10, run_config=quiet))
    return policy.prompts


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_shipped_agent_reads_the_very_tokens_that_it_was_trained_on(codecs, family, data):
    replies = [*data.draw(turns(family)), "Filed."]
    played, rollout = played_prompts(replies, codecs[family])
    assert shipped_prompts(replies, codecs[family])[: len(played)] == played
    assert rollout.ending.value in ("answered", "turn_limit")


def user_texts(prompt, codec):
    return re.findall(r"<\|im_start\|>user\n([^<]*)<\|im_end\|>", codec.decode(prompt))


def test_examples_precede_a_conversation_once_and_no_nested_run(codecs):
    codec = codecs["qwen3"]
    ask = written("qwen3", "ask", {"input": "well?"}, (", ", ": "))
    policy = Recording([ask, "Nested.", "First.", "Second."], codec)
    nested = Agent(name="nested").as_tool("ask", "Ask it.")
    model = PolicyModel(policy, Sampling(max_tokens=1_000), examples=SHOWN)
    agent = Agent(name="a", model=model, tools=[nested])
    quiet = RunConfig(tracing_disabled=True)

    async def talk():
        first = await Runner.run(agent, "one", run_config=quiet)
        history = [*first.to_input_list(), {"role": "user", "content": "two"}]
        await Runner.run(agent, history, run_config=quiet)

    asyncio.run(talk())
    shown = [user_texts(prompt, codec)[: 1 + (n != 1)] for n, prompt in enumerate(policy.prompts)]
    assert shown == [["sort that", "one"], ["well?"], ["sort that", "one"], ["sort that", "one"]]
    assert codec.decode(policy.prompts[3]).count("sort that") == 1


@pytest.mark.parametrize("is_streamed", [False, True])
def test_examples_precede_the_history_of_a_session_and_are_not_stored(codecs, is_streamed):
    codec = codecs["qwen3"]
    policy = Recording(["First.", "Second."], codec)
    agent = Agent(name="a", model=PolicyModel(policy, Sampling(), examples=SHOWN))
    session = SQLiteSession("s")
    quiet = RunConfig(tracing_disabled=True)

    async def run(text):
        if is_streamed:
            async for _ in Runner.run_streamed(
                agent, text, session=session, run_config=quiet
            ).stream_events():
                pass
        else:
            await Runner.run(agent, text, session=session, run_config=quiet)

    async def talk():
        await run("one")
        await run("two")
        return await session.get_items()

    stored = asyncio.run(talk())
    assert [each.get("content") for each in stored if each.get("role") == "user"] == ["one", "two"]
    assert user_texts(policy.prompts[0], codec) == ["sort that", "one"]
    assert user_texts(policy.prompts[1], codec) == ["sort that", "one", "two"]


def test_a_conversation_continues_its_own_sampled_tokens(codecs):
    codec = codecs["qwen3"]
    policy = Recording(["<think>hm</think>First.", "Second."], codec)
    agent = Agent(name="a", model=PolicyModel(policy, Sampling()))

    async def talk():
        first = await Runner.run(agent, "one", run_config=RunConfig(tracing_disabled=True))
        history = [*first.to_input_list(), {"role": "user", "content": "two"}]
        await Runner.run(agent, history, run_config=RunConfig(tracing_disabled=True))

    asyncio.run(talk())
    assert "<think>hm</think>First." in codec.decode(policy.prompts[1])


def test_thinking_is_dropped_from_what_later_turns_read_unless_it_is_kept(codecs):
    codec = ChatCodec(codecs["qwen3"].tokenizer, family_named("qwen3"))
    policy = Recording(["<think>hm</think>First.", "Second."], codec)
    agent = Agent(name="a", model=PolicyModel(policy, Sampling()))

    async def talk():
        first = await Runner.run(agent, "one", run_config=RunConfig(tracing_disabled=True))
        history = [*first.to_input_list(), {"role": "user", "content": "two"}]
        await Runner.run(agent, history, run_config=RunConfig(tracing_disabled=True))

    asyncio.run(talk())
    messages = [Message("user", "one"), Message("assistant", "First."), Message("user", "two")]
    assert policy.prompts[1] == codec.encode_prompt(messages, []).ids


def test_a_conversation_may_continue_twice_from_one_turn(codecs):
    codec = codecs["qwen3"]
    policy = Recording(["<think>hm</think>First.", "Left.", "Right."], codec)
    agent = Agent(name="a", model=PolicyModel(policy, Sampling()))

    async def talk():
        first = await Runner.run(agent, "one", run_config=RunConfig(tracing_disabled=True))
        for way in ("left", "right"):
            history = [*first.to_input_list(), {"role": "user", "content": way}]
            await Runner.run(agent, history, run_config=RunConfig(tracing_disabled=True))

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
        history = [*first.to_input_list(), {"role": "user", "content": "two"}]
        await Runner.run(agent, history, run_config=RunConfig(tracing_disabled=True))

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
        history = json.loads(json.dumps(first.to_input_list()).replace("sesame", "****"))
        await Runner.run(
            agent,
            [*history, {"role": "user", "content": "two"}],
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


@pytest.fixture
def codec(codecs):
    return codecs["qwen3"]


class Watching(ScriptedPolicy):
    def __init__(self, replies, codec):
        texts = iter(replies)
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
    replies = ['add", "arguments": {"a": 1, "b": 2}}\n</tool_call>', "3"]
    played = play_script(agent, replies, codec)
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
