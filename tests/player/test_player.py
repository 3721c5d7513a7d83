"""What an agent of the SDK can be made of, played."""

from __future__ import annotations

import asyncio
import itertools
import re
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    RunConfig,
    RunContextWrapper,
    Runner,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from agents.run import ModelInputData
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import CallFailure, Ending, RolloutKey, TokenKind, TokenRow
from sparring.contracts.specs import Limits
from sparring.player import Play, Played, Player
from sparring.player.player import ConcurrentPlayer, SharedOpening, Slots
from sparring.player.tools import formats_exceptions
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.policies.transformers_policy import LockstepBatches
from sparring.threads import run_in_own_loop
from tests.conftest import FAMILIES
from tests.rollouts import call, play_script, rollout

our_words_only = pytest.mark.skipif(
    not formats_exceptions(), reason="this SDK words the exceptions of tools itself"
)


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


@function_tool
async def fail() -> str:
    """Always fails."""
    raise RuntimeError("disk on fire")


AGENT = Agent(name="calc", instructions="Use tools.", tools=[add, fail])


@pytest.fixture
def codec(codecs):
    return codecs["qwen3"]


def test_a_tool_is_called_and_its_result_used(codec):
    played = play_script(AGENT, [call("add", a=1, b=2), "It is 3."], codec)
    assert played.ending is Ending.ANSWERED
    assert played.answer == "It is 3."
    assert [(c.tool, c.result, c.failure) for c in played.tool_calls] == [("add", "3", None)]
    assert [m.role for m in played.messages] == ["user", "assistant", "tool", "assistant"]
    (row,) = played.rows
    assert [span.kind for span in row.spans] == [
        TokenKind.PROMPT,
        TokenKind.SAMPLED,
        TokenKind.OBSERVED,
        TokenKind.SAMPLED,
    ]
    (body,) = row.bodies
    assert codec.decode(row.ids[body.start : body.stop]) == "3"
    assert body.tool == "add"


@our_words_only
def test_a_tool_that_raises_tells_the_model_why(codec):
    played = play_script(AGENT, [call("fail"), "Sorry."], codec)
    assert played.tool_calls[0].failure is CallFailure.RAISED
    assert played.tool_calls[0].result == "fail failed: RuntimeError: disk on fire"


@our_words_only
def test_wrong_arguments_are_explained_in_one_line(codec):
    played = play_script(AGENT, [call("add", a="x"), "Sorry."], codec)
    result = played.tool_calls[0].result
    assert (
        result
        == "add failed: a: 'x' is not of type 'integer'; arguments: 'b' is a required property"
    )


def test_an_unknown_tool_tells_the_model_which_there_are(codec):
    played = play_script(AGENT, [call("subtract", a=1), "Sorry."], codec)
    assert played.tool_calls[0].failure is CallFailure.UNKNOWN_TOOL
    assert played.tool_calls[0].result == "There is no tool 'subtract'. The tools are: add, fail."
    assert played.ending is Ending.ANSWERED


def test_only_unknown_tools_until_the_turns_are_used_up_is_a_cause_of_its_own(codec):
    limits = Limits(max_turns=3)
    played = play_script(AGENT, [call("nope")] * 5, codec, limits=limits)
    assert played.ending is Ending.UNKNOWN_TOOL
    played = play_script(AGENT, [call("add", a=1, b=1)] * 5, codec, limits=limits)
    assert played.ending is Ending.TURN_LIMIT
    assert played.turns == 3


def test_an_unparsable_call_ends_the_rollout_and_can_be_judged(codec):
    played = play_script(AGENT, ["<tool_call>{oops</tool_call>"], codec)
    assert played.ending is Ending.UNPARSABLE_CALL
    assert played.ending.is_judged
    assert "not JSON" in played.detail
    assert played.rows[0].sampled > 0


def test_an_answer_that_is_cut_off_is_truncated(codec):
    played = play_script(AGENT, ["word " * 500], codec, limits=Limits(completion_tokens=20))
    assert played.is_truncated
    assert played.tokens.sampled == 20


def test_tool_results_count_against_the_budget(codec):
    @function_tool
    def flood() -> str:
        """Says much."""
        return "word " * 5000

    agent = Agent(name="a", tools=[flood])
    played = play_script(agent, [call("flood"), call("flood"), "ok"], codec)
    assert (played.ending, played.answer) == (Ending.ANSWERED, "ok")
    for made in played.tool_calls:
        assert "(cut off: 25,000 characters" in made.result
    (row,) = played.rows
    assert len(row.ids) - row.spans[0].length <= 1024


@pytest.mark.parametrize("text", ["word " * 9000, "ä€🙂" * 3000, "<|im_end|>" * 3000, "0" * 30000])
def test_a_long_tool_result_leaves_room_for_the_answer(codec, text):
    @function_tool
    def flood() -> str:
        """Says much."""
        return text

    agent = Agent(name="a", tools=[flood])
    both = call("flood") + "\n" + call("flood")
    played = play_script(agent, [both, "the answer"], codec, limits=Limits(completion_tokens=400))
    assert (played.ending, played.answer) == (Ending.ANSWERED, "the answer")


def test_every_rollout_gets_a_context_of_its_own(codec):
    @function_tool
    def note(ctx: RunContextWrapper[dict], text: str) -> str:
        """Note something."""
        ctx.context["noted"] = text
        return "ok"

    agent = Agent(name="a", tools=[note])
    worlds = [
        play_script(agent, [call("note", text=text), "done"], codec, context=dict).world
        for text in "ab"
    ]
    assert worlds == [{"noted": "a"}, {"noted": "b"}]


def test_a_context_factory_may_take_the_case_and_be_async(codec):
    async def make(case):
        return f"world of {case.id}"

    assert play_script(AGENT, ["hi"], codec, context=make).world == "world of c"


@pytest.mark.parametrize(
    ("make", "world"),
    [
        (partial(lambda *, city: city, city="Rome"), "Rome"),
        (lambda city="Rome": city, "Rome"),
        (lambda *args: args[0].id, "c"),
        (lambda city="Rome", *_: city, "Rome"),
        (lambda case, *_: case.id, "c"),
        (lambda case=None, city="Rome": f"{case.id} in {city}", "c in Rome"),
    ],
)
def test_a_context_factory_gets_the_case_where_its_first_parameter_takes_it(codec, make, world):
    assert play_script(AGENT, ["hi"], codec, context=make).world == world


def test_a_broken_context_factory_is_an_infrastructure_error(codec):
    def broken():
        raise OSError("no disk")

    played = play_script(AGENT, ["hi"], codec, context=broken)
    assert played.ending is Ending.INFRASTRUCTURE_ERROR
    assert re.fullmatch(
        r"creating the world failed: OSError: no disk \(test_player.py:\d+\)", played.detail
    )
    assert not played.ending.is_judged


def test_instructions_may_be_a_function(codec):
    def instructions(ctx: RunContextWrapper[str], agent: Agent) -> str:
        return f"You are {agent.name} in {ctx.context}."

    played = play_script(
        Agent(name="x", instructions=instructions), ["hi"], codec, context=lambda: "Rome"
    )
    assert "You are x in Rome." in codec.decode(played.rows[0].ids)


def test_a_blocking_input_guardrail_ends_the_rollout_before_the_first_token(codec):
    @input_guardrail
    def no_questions(ctx, agent, input):
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    played = play_script(Agent(name="a", input_guardrails=[no_questions]), ["hi"], codec)
    assert played.ending is Ending.INPUT_GUARDRAIL
    assert played.detail == "no_questions"
    assert played.rows == ()


def test_an_output_guardrail_ends_the_rollout_with_its_tokens(codec):
    @output_guardrail
    def no_greeting(ctx, agent, output):
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=output == "hi")

    played = play_script(Agent(name="a", output_guardrails=[no_greeting]), ["hi"], codec)
    assert played.ending is Ending.OUTPUT_GUARDRAIL
    assert played.answer == "hi"
    assert len(played.rows) == 1


class Sum(BaseModel):
    total: int


def test_the_schema_of_an_output_type_is_in_the_prompt_and_the_answer_is_parsed(codec):
    played = play_script(Agent(name="a", output_type=Sum), ['{"total": 3}'], codec)
    assert played.output == Sum(total=3)
    assert played.answer == '{"total": 3}'
    assert '"total"' in codec.decode(played.rows[0].ids[: played.rows[0].spans[0].length])


def test_an_answer_that_does_not_fit_the_output_type_is_named(codec):
    played = play_script(Agent(name="a", output_type=Sum), ["three"], codec)
    assert played.ending is Ending.INVALID_OUTPUT
    assert played.answer == "three"


def test_a_handoff_gives_a_row_for_each_agent(codec):
    french = Agent(name="french", instructions="Parle français.")
    triage = Agent(name="triage", instructions="Hand off.", handoffs=[french])
    played = play_script(triage, [call("transfer_to_french"), "Bonjour."], codec)
    assert played.answer == "Bonjour."
    assert [row.agent for row in played.rows] == ["triage", "french"]
    assert [(row.start, row.parent) for row in played.rows] == [("first", None), ("handoff", 0)]
    assert [row.sampled > 0 for row in played.rows] == [True, True]
    assert [m.agent for m in played.messages if m.role == "assistant"] == ["triage", "french"]
    assert [m.role for m in played.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_nested_agent_gives_a_row_of_its_own_and_its_tools_are_governed(codec):
    inner = Agent(name="inner", instructions="Add.", tools=[add])
    outer = Agent(name="outer", tools=[inner.as_tool("ask", "Ask the inner agent.")])
    replies = [call("ask", input="1 + 2?"), call("add", a=1, b=2), "three", "It is three."]
    played = play_script(outer, replies, codec)
    assert played.answer == "It is three."
    assert [row.agent for row in played.rows] == ["outer", "inner"]
    assert [(c.tool, c.agent) for c in played.tool_calls] == [("ask", "outer"), ("add", "inner")]
    outer_row, inner_row = played.rows
    assert [span.kind for span in outer_row.spans] == ["prompt", "sampled", "observed", "sampled"]
    assert len(inner_row.spans) == 4
    assert (outer_row.start, inner_row.start, inner_row.parent) == ("first", "nested", 0)


def test_worked_examples_in_the_input_are_prompt_and_not_sampled(codec):
    items = [
        {"role": "user", "content": "1 + 1?"},
        {"type": "function_call", "call_id": "e", "name": "add", "arguments": '{"a": 1, "b": 1}'},
        {"type": "function_call_output", "call_id": "e", "output": "2"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "1 + 2?"},
    ]
    played = play_script(AGENT, [call("add", a=1, b=2), "3"], codec, input=items)
    (row,) = played.rows
    prompt = codec.decode(row.ids[: row.spans[0].length])
    assert '{"name": "add", "arguments": {"a": 1, "b": 1}}' in prompt
    assert len(played.tool_calls) == 1


def test_a_history_that_changes_starts_a_new_row(codec):
    turns = iter(range(9))

    def instructions(ctx, agent) -> str:
        return f"It is turn {next(turns)}."

    played = play_script(
        Agent(name="a", instructions=instructions, tools=[add]), [call("add", a=1, b=2), "3"], codec
    )
    assert len(played.rows) == 2
    assert all(len(row.spans) == 2 for row in played.rows)
    assert [(row.start, row.parent) for row in played.rows] == [("first", None), ("frame", 0)]


def test_a_history_that_a_filter_shortens_starts_a_new_row(codec):
    def shorten(data):
        items = data.model_data.input
        return ModelInputData(input=items[-2:], instructions=data.model_data.instructions)

    @function_tool
    async def summarise() -> str:
        """Run the same agent with a filter."""
        config = RunConfig(call_model_input_filter=shorten)
        done = await Runner.run(inner, "1 + 2?", run_config=config)
        return str(done.final_output)

    inner = Agent(name="inner", tools=[add])
    outer = Agent(name="outer", tools=[summarise])
    replies = [call("summarise"), call("add", a=1, b=2), "3", "It is 3."]
    played = play_script(outer, replies, codec)
    assert played.answer == "It is 3."
    starts = [(row.agent, row.start, row.parent) for row in played.rows]
    assert starts == [("outer", "first", None), ("inner", "nested", 0), ("inner", "history", 1)]


def test_a_turn_after_thinking_starts_a_row_that_does_not_show_it(codecs):
    codec = ChatCodec(codecs["qwen3"].tokenizer, family_named("qwen3"))
    thoughtful = "<think>carry the one</think>" + call("add", a=1, b=2)
    played = play_script(Agent(name="a", tools=[add]), [thoughtful, "3"], codec)
    assert [row.start for row in played.rows] == ["first", "history"]
    first, second = (codec.decode(row.ids) for row in played.rows)
    assert "carry the one" in first
    assert "carry the one" not in second
    assert sum(row.sampled for row in played.rows) == played.tokens.sampled
    calm = play_script(Agent(name="a", tools=[add]), [call("add", a=1, b=2), "3"], codec)
    assert len(calm.rows) == 1


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.recursive(st.just(()), lambda below: st.lists(below, max_size=3), max_leaves=6))
def test_every_sampled_token_is_in_one_row_whatever_agents_call_each_other(codec, tree):
    """A tree of agents: the first child of each gets the handoff last, the others are tools."""
    replies: list[str] = []
    names = itertools.count()

    def made(children) -> Agent:
        name = f"agent{next(names)}"
        successor, *nested = children or [None]
        tools = []
        for number, child in enumerate(nested):
            replies.append(call(f"{name}_{number}", input="go"))
            tools.append(made(child).as_tool(f"{name}_{number}", "A nested agent."))
        if successor is None:
            replies.append(f"{name} is done")
            return Agent(name=name, tools=tools)
        place = len(replies)
        target = made(successor)
        replies.insert(place, call(f"transfer_to_{target.name}"))
        return Agent(name=name, tools=tools, handoffs=[target])

    agent = made(tree)
    wide = Limits(max_turns=65, completion_tokens=100_000)
    played = play_script(agent, list(replies), codec, limits=wide)
    sampled = [
        codec.decode(row.ids[start : start + span.length])
        for row in played.rows
        for start, span in spans_of(row)
        if span.kind is TokenKind.SAMPLED
    ]
    end = codec.decode(array("i", [codec.end_of_turn]))
    assert sorted(sampled) == sorted(text + end for text in replies)
    assert sum(row.sampled for row in played.rows) == played.tokens.sampled
    assert all(row.parent is None or row.parent < place for place, row in enumerate(played.rows))


def spans_of(row: TokenRow):
    """Yield each span with where it begins."""
    start = 0
    for span in row.spans:
        yield start, span
        start += span.length


def test_the_first_tools_result_can_be_the_answer(codec):
    agent = Agent(name="a", tools=[add], tool_use_behavior="stop_on_first_tool")
    played = play_script(agent, [call("add", a=1, b=2)], codec)
    assert played.answer == "3"
    assert played.tool_calls[0].result == "3"


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_plays_a_tool_call(codecs, name):
    reply = call("add", a=1, b=2)
    if name == "llama3":
        reply = '{"name": "add", "parameters": {"a": 1, "b": 2}}'
    played = play_script(AGENT, [reply, "three"], codecs[name])
    assert played.answer == "three"
    assert played.tool_calls[0].result == "3"
    assert len(played.rows) == 1


def test_the_users_own_objects_are_left_as_they_were(codec):
    before = (add.on_invoke_tool, AGENT.tools, list(AGENT.tools), AGENT.model)
    play_script(AGENT, [call("add", a=1, b=2), "3"], codec)
    assert (add.on_invoke_tool, AGENT.tools, list(AGENT.tools), AGENT.model) == before


def test_a_policy_that_breaks_ends_its_rollout_and_no_other(codec):
    def script(request):
        if request.key.rollout.case_id == "1":
            raise ValueError("broken weights")
        return "fine"

    async def play():
        player = Player(AGENT, ScriptedPolicy(script, codec))
        plays = [Play(RolloutKey(0, 0, str(n), 0), Case(str(n), "hi")) for n in range(3)]
        return {p.rollout.case.id: p.rollout async for p in player.play(plays)}

    played = asyncio.run(play())
    assert [played[n].ending for n in "012"] == [
        Ending.ANSWERED,
        Ending.INFRASTRUCTURE_ERROR,
        Ending.ANSWERED,
    ]
    assert played["1"].detail == "ValueError: broken weights"


def test_playing_works_inside_a_running_loop(codec):
    async def notebook():
        player = Player(AGENT, ScriptedPolicy(lambda request: "hi", codec))
        return run_in_own_loop(player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "?"))))

    assert asyncio.run(notebook()).answer == "hi"


def test_the_worlds_of_rollouts_behind_one_that_hangs_end_when_the_play_is_stopped():
    worlds = [SimpleNamespace(ended=0) for _ in range(3)]
    for world in worlds:
        world.after_rollout = partial(setattr, world, "ended", 1)

    plays = [Play(RolloutKey(0, 0, "c", number), Case("c", "?")) for number in range(3)]
    others = asyncio.Barrier(3)  # two rollouts that end, and the one who waits for them

    class Waiting(ConcurrentPlayer):
        async def _roll_out(self, play):
            if play.key.index == 0:
                await asyncio.Event().wait()
            await others.wait()
            return Played(replace(rollout("yes"), world=worlds[play.key.index]), 1.0)

    async def stopped():
        policy = LockstepBatches(lambda requests: [])
        policy.name, policy.codec, policy.samples_in_lockstep = "lockstep", None, True
        waiting = asyncio.create_task(anext(Waiting(policy, Limits(max_concurrency=3)).play(plays)))
        await others.wait()
        await asyncio.sleep(0.01)  # until they have returned
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(stopped())
    assert [world.ended for world in worlds] == [0, 1, 1]  # the first one has none yet


plays = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans()), max_size=12)


@given(st.integers(1, 4), plays)
def test_no_more_than_the_number_play_and_all_that_are_not_cancelled_do(
    number: int, wanted: list[tuple[int, int, bool]]
) -> None:
    inside, most, done = 0, 0, []

    async def play(slots: Slots, place: int, step: int, rounds: int) -> None:
        nonlocal inside, most
        async with slots.slot(step):
            inside += 1
            most = max(most, inside)
            for _ in range(rounds):
                await asyncio.sleep(0)
            inside -= 1
            done.append(place)

    async def run() -> None:
        slots = Slots(number)
        tasks = [
            asyncio.create_task(play(slots, place, step, rounds))
            for place, (step, rounds, _) in enumerate(wanted)
        ]
        doomed = [task for task, (_, _, dies) in zip(tasks, wanted, strict=True) if dies]
        for task in doomed:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(number):  # every slot is free again
            await asyncio.wait_for(slots._acquire(0), 1)

    asyncio.run(run())
    assert most <= number
    assert sorted(done) == [place for place, (_, _, dies) in enumerate(wanted) if not dies]


def test_a_free_slot_goes_to_the_earliest_step() -> None:
    order: list[int] = []

    async def play(slots: Slots, step: int) -> None:
        async with slots.slot(step):
            order.append(step)
            await asyncio.sleep(0)

    async def run() -> None:
        slots = Slots(1)
        await asyncio.gather(*(play(slots, step) for step in (5, 7, 6, 5, 4)))

    asyncio.run(run())
    assert order == [5, 4, 5, 6, 7]


def test_a_rollout_that_is_cancelled_when_it_gets_a_slot_gives_it_back() -> None:
    async def run() -> None:
        slots = Slots(1)
        holder = slots.slot(0)
        await holder.__aenter__()
        waiting = asyncio.create_task(slots._acquire(0))
        await asyncio.sleep(0)
        await holder.__aexit__(None, None, None)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(slots._acquire(0), 1)

    asyncio.run(run())


class Connection:
    def __init__(self, error: Exception | None = None) -> None:
        self.log: list[str] = []
        self.tasks: list[object] = []
        self._error = error

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        self.tasks.append(asyncio.current_task())
        if self._error is not None:
            raise self._error
        self.log.append("open")
        try:
            yield
        finally:
            await asyncio.sleep(0)
            self.log.append("closed")
            self.tasks.append(asyncio.current_task())


def test_batches_that_overlap_share_one_opening() -> None:
    connection = Connection()

    async def batch(opening: SharedOpening, ready: asyncio.Event, over: asyncio.Event) -> None:
        async with opening.used():
            ready.set()
            await over.wait()
            assert connection.log == ["open"]

    async def run() -> None:
        opening = SharedOpening(connection)
        events = [(asyncio.Event(), asyncio.Event()) for _ in range(2)]
        tasks = [asyncio.create_task(batch(opening, *each)) for each in events]
        for ready, _ in events:
            await ready.wait()
        events[0][1].set()
        await tasks[0]
        assert connection.log == ["open"]
        events[1][1].set()
        await tasks[1]

    asyncio.run(run())
    assert connection.log == ["open", "closed"]
    assert connection.tasks[0] is connection.tasks[1]


def test_a_batch_that_comes_while_another_closes_opens_anew() -> None:
    connection = Connection()

    async def run() -> None:
        opening = SharedOpening(connection)

        async def batch() -> None:
            async with opening.used():
                await asyncio.sleep(0)

        first = asyncio.create_task(batch())
        while "closed" not in connection.log:
            await asyncio.sleep(0)
            if opening._over.is_set():
                await batch()
        await first

    asyncio.run(run())
    assert connection.log == ["open", "closed"] * (len(connection.log) // 2)
    assert len(connection.log) >= 4


def test_an_error_of_opening_reaches_every_batch_and_the_next_one_tries_again() -> None:
    connection = Connection(ValueError("no server"))

    async def run() -> None:
        opening = SharedOpening(connection)
        for _ in range(2):
            with pytest.raises(ValueError, match="no server"):
                async with opening.used():
                    pass

    asyncio.run(run())
    assert len(connection.tasks) == 2
