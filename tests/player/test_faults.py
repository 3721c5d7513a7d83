"""What goes wrong around a model is never scored as the model's doing, and holds up nobody."""

import asyncio
import sys
import threading
import time

import pytest
from agents import Agent, function_tool

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import CallFailure, Ending, RolloutKey
from sparring.contracts.specs import Limits
from sparring.player import Play, Player
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.policies.transformers_policy import LockstepBatches
from tests.rollouts import call, play_script


@pytest.fixture
def codec(codecs):
    return codecs["qwen3"]


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


INNER = Agent(name="inner", instructions="inner", tools=[add])
OUTER = Agent(name="outer", tools=[INNER.as_tool("ask", "Ask.")])


def test_an_infrastructure_error_in_a_nested_agent_is_not_judged_as_the_outer_agents(codec):
    def script(request):
        if request.key.turn == 1:
            raise ConnectionError("the server is gone")
        return call("ask", input="?") if request.key.turn == 0 else "I do not know"

    player = Player(OUTER, ScriptedPolicy(script, codec))
    played = asyncio.run(player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "?"))))
    assert played.ending is Ending.INFRASTRUCTURE_ERROR
    assert played.detail == "ConnectionError: the server is gone"
    assert all(row.sampled for row in played.rows)


def test_a_budget_that_runs_out_inside_a_nested_agent_ends_the_rollout(codec):
    limits = Limits(completion_tokens=90)
    replies = [call("ask", input="?"), "word " * 200, "never reached"]
    played = play_script(OUTER, replies, codec, limits=limits)
    assert played.ending is Ending.TOKEN_BUDGET
    assert all(row.sampled for row in played.rows)


def test_a_lockstep_batch_does_not_wait_for_agents_without_a_slot(codec):
    class InBatches(ScriptedPolicy):
        samples_in_lockstep = True

        def __init__(self, script):
            super().__init__(script, codec)
            self._batches = LockstepBatches(
                lambda requests: [asyncio.run(ScriptedPolicy.sample(self, r)) for r in requests]
            )
            self.join, self.leave = self._batches.join, self._batches.leave

        async def sample(self, request):
            return await self._batches.sample(request)

    async def play():
        policy = InBatches(
            lambda request: [call("ask", input="?"), "inner says", "done"][request.key.turn]
        )
        limits = Limits(tool_concurrency=2, rollout_timeout=5)
        plays = [Play(RolloutKey(0, 0, str(n), 0), Case(str(n), "?")) for n in range(6)]
        return [p.rollout.ending async for p in Player(OUTER, policy, limits=limits).play(plays)]

    assert asyncio.run(play()) == [Ending.ANSWERED] * 6


def test_a_tool_that_exits_the_process_only_fails(codec):
    @function_tool
    def leave() -> str:
        """Leaves."""
        sys.exit(2)

    @function_tool
    async def leave_async() -> str:
        """Leaves."""
        sys.exit(2)

    agent = Agent(name="a", tools=[leave, leave_async])
    played = play_script(agent, [call("leave"), "done"], codec)
    assert played.answer == "done"
    assert played.tool_calls[0].failure is CallFailure.RAISED
    played = play_script(agent, [call("leave_async"), "done"], codec)
    assert (
        played.ending is Ending.INFRASTRUCTURE_ERROR
    )  # the SDK lets it through; it ends this rollout only


def test_a_result_far_over_the_budget_is_cut_and_says_so(codec):
    @function_tool
    def flood() -> str:
        """Says much."""
        return "x" * 3_000_000

    started = time.monotonic()
    played = play_script(Agent(name="a", tools=[flood]), [call("flood"), "ok"], codec)
    assert (played.ending, played.answer) == (Ending.ANSWERED, "ok")
    assert "cut off: 3,000,000 characters" in played.tool_calls[0].result
    assert time.monotonic() - started < 5


def test_a_thread_is_counted_as_hung_when_the_whole_rollout_runs_out_of_time(codec):
    release = threading.Event()

    @function_tool
    def work() -> str:
        """Hangs."""
        release.wait(10)
        return "late"

    async def play():
        policy = ScriptedPolicy(lambda request: call("work"), codec)
        player = Player(Agent(name="a", tools=[work]), policy, limits=Limits(rollout_timeout=0.2))
        rollout = await player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "?")))
        return rollout.ending, player.hung_threads()

    ending, hung = asyncio.run(play())
    release.set()
    assert (ending, hung) == (Ending.ROLLOUT_DEADLINE, ["work"])
