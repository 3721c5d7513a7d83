"""Runs inside a rollout are answered by the rollout's model, wherever they begin."""

import asyncio

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    Model,
    RunConfig,
    Runner,
    function_tool,
    output_guardrail,
)
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner

from sparring import tool
from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, RolloutKey
from sparring.contracts.specs import Limits
from sparring.player import Play, Player
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.threads import run_in_own_loop
from tests.rollouts import call, play_script

BROKEN_CALL = "<tool_call>\n{broken\n</tool_call>"
HELPER = Agent(name="helper", instructions="Help.", model="gpt-5-mini")


@pytest.fixture
def codec(codecs):
    return codecs["qwen3"]


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_a_run_inside_a_tool_is_answered_by_the_policy(codec):
    @function_tool
    async def ask(question: str) -> str:
        """Ask a helper."""
        return (await Runner.run(HELPER, question)).final_output

    played = play_script(
        Agent(name="a", tools=[ask]), [call("ask", question="?"), "helped", "Done."], codec
    )
    assert played.ending is Ending.ANSWERED, played.detail
    assert played.tool_calls[0].result == "helped"
    assert played.answer == "Done."
    assert {row.agent for row in played.rows} == {"a", "helper"}


@pytest.mark.parametrize("how", ["run_sync", "asyncio.run"])
def test_a_plain_tool_may_run_an_agent_from_its_thread(codec, how):
    @function_tool
    def ask(question: str) -> str:
        """Ask a helper."""
        if how == "run_sync":
            return Runner.run_sync(HELPER, question).final_output
        return asyncio.run(Runner.run(HELPER, question)).final_output

    played = play_script(
        Agent(name="a", tools=[ask]), [call("ask", question="?"), "helped", "Done."], codec
    )
    assert (played.ending, played.answer) == (Ending.ANSWERED, "Done.")
    assert played.tool_calls[0].result == "helped"


def test_a_tool_of_a_world_may_run_an_agent(codec):
    class World:
        @tool
        def ask(self) -> str:
            """Ask a helper."""
            return Runner.run_sync(HELPER, "?").final_output

    played = play_script(Agent(name="a"), [call("ask"), "helped", "Done."], codec, context=World)
    assert played.tool_calls[0].result == "helped"


def test_the_reply_of_a_guardrails_agent_is_not_the_answer(codec):
    @output_guardrail
    async def polite(context, agent, output) -> GuardrailFunctionOutput:
        judged = await Runner.run(HELPER, f"is this polite? {output}")
        return GuardrailFunctionOutput(judged.final_output, tripwire_triggered=False)

    agent = Agent(name="a", output_guardrails=[polite])
    played = play_script(agent, ["Good day.", "yes"], codec)
    assert (played.ending, played.answer) == (Ending.ANSWERED, "Good day.")


def test_a_nested_run_that_names_another_model_is_an_error_that_says_so(codec):
    @function_tool
    async def ask(question: str) -> str:
        """Ask a helper."""
        config = RunConfig(model="gpt-5-mini")
        return (await Runner.run(HELPER, question, run_config=config)).final_output

    agent = Agent(name="a", tools=[ask])
    played = play_script(agent, [call("ask", question="?"), "helped", "Done."], codec)
    assert played.ending is Ending.INFRASTRUCTURE_ERROR
    assert "'helper'" in played.detail
    assert "gpt-5-mini" in played.detail


def test_a_run_outside_of_a_rollout_keeps_its_own_model(codec):
    class Own(Model):
        async def get_response(self, *args, **kwargs):
            raise RuntimeError("own model called")

        def stream_response(self, *args, **kwargs):
            raise NotImplementedError

    play_script(Agent(name="a"), ["hello"], codec)  # our runner is in place from here on
    with pytest.raises(RuntimeError, match="own model called"):
        asyncio.run(Runner.run(Agent(name="b", model=Own()), "?"))


def test_an_agent_as_tool_that_streams_is_answered_as_well(codec):
    heard = []
    inner = Agent(name="inner").as_tool("inner", "Ask.", on_stream=heard.append)
    played = play_script(
        Agent(name="a", tools=[inner]), [call("inner", input="?"), "inside", "Done."], codec
    )
    assert (played.tool_calls[0].result, played.answer) == ("inside", "Done.")
    assert heard


class Shop:
    @tool
    def stock(self) -> str:
        """How many there are."""
        return "seven"


def test_world_tools_reach_agents_before_and_after_a_handoff(codec):
    clerk = Agent(name="clerk")
    writer = Agent(name="desk", handoffs=[clerk])
    clerk.handoffs.append(writer)
    replies = [
        call("transfer_to_clerk"),
        call("stock"),
        call("transfer_to_desk"),
        call("stock"),
        "Seven.",
    ]
    played = play_script(writer, replies, codec, context=Shop)
    assert [c.result for c in played.tool_calls if c.tool == "stock"] == ["seven", "seven"]


def test_world_tools_reach_an_agent_as_tool_but_not_a_run_without_the_world(codec):
    inner = Agent(name="inner").as_tool("inner", "Ask.")

    @function_tool
    async def outside() -> str:
        """Ask an agent that has no world."""
        return (await Runner.run(HELPER, "?")).final_output

    agent = Agent(name="a", tools=[inner, outside])
    replies = [
        call("inner", input="?"),
        call("stock"),
        "seven inside",
        call("outside"),
        call("stock"),
    ]
    played = play_script(agent, [*replies, "none", "Done."], codec, context=Shop)
    assert [c.failure is None for c in played.tool_calls if c.tool == "stock"] == [True, False]


def test_a_tool_that_runs_an_agent_holds_no_place_while_it_waits(tiny_policy):
    """In a lockstep batch, two rollouts would wait for each other: one for the model, the other
    for the place among the calls of this tool."""

    @function_tool
    async def ask() -> str:
        """Ask a helper."""
        return (await Runner.run(HELPER, "?", max_turns=1)).final_output

    agent = Agent(name="a", tools=[ask], tool_use_behavior="stop_on_first_tool")
    agent.model_settings.tool_choice = "ask"
    limits = Limits(completion_tokens=40, tool_concurrency_by_name={"ask": 1}, rollout_timeout=20)
    player = Player(agent, tiny_policy, limits=limits)
    plays = [Play(RolloutKey(0, 0, "c", n), Case("c", "?")) for n in range(3)]

    async def all_of_them():
        return [played.rollout async for played in player.play(plays)]

    for rollout in run_in_own_loop(all_of_them()):
        assert rollout.ending is not Ending.ROLLOUT_DEADLINE


def test_a_rollout_under_a_runner_that_wraps_ours_is_the_outer_run(codec):
    policy = ScriptedPolicy(lambda _: BROKEN_CALL, codec)
    player = Player(Agent(name="a", tools=[unused]), policy)
    inner = get_default_agent_runner()

    class Tracing(AgentRunner):
        async def run(self, *given, **options):
            return await inner.run(*given, **options)

    set_default_agent_runner(Tracing())
    try:
        played = asyncio.run(player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "?"))))
    finally:
        set_default_agent_runner(inner)
    assert played.ending is Ending.UNPARSABLE_CALL


@function_tool
def unused() -> str:
    """Do nothing."""
    return ""
