import asyncio
import threading
import time

import pytest
from agents import Agent, function_tool
from pydantic import BaseModel

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import CallFailure, Ending, RolloutKey
from sparring.contracts.specs import Limits
from sparring.player import Play, Player
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.rollouts import call, play_script


@pytest.fixture
def codec(codecs):
    return codecs["qwen3"]


def play_many(agent, codec, count, limits, replies=None):
    replies = replies or [call("work"), "done"]

    async def play():
        policy = ScriptedPolicy(
            lambda request: replies[min(request.key.turn, len(replies) - 1)], codec
        )
        player = Player(agent, policy, limits=limits)
        plays = [Play(RolloutKey(0, 0, str(n), 0), Case(str(n), "go")) for n in range(count)]
        return [played.rollout async for played in player.play(plays)], player

    return asyncio.run(play())


def test_a_tool_call_past_its_deadline_ends_with_a_message_to_the_model(codec):
    @function_tool
    async def work() -> str:
        """Takes forever."""
        await asyncio.sleep(60)
        return "never"

    played = play_script(
        Agent(name="a", tools=[work]),
        [call("work"), "gave up"],
        codec,
        limits=Limits(tool_timeout=0.05),
    )
    assert played.ending is Ending.ANSWERED
    assert played.tool_calls[0].failure is CallFailure.DEADLINE
    assert played.tool_calls[0].result == "work gave no result within 0.05 seconds."


def test_a_thread_that_outlives_its_deadline_is_counted_until_it_returns(codec):
    release = threading.Event()

    @function_tool
    def work() -> str:
        """Hangs."""
        release.wait(10)
        return "late"

    _, player = play_many(Agent(name="a", tools=[work]), codec, 3, Limits(tool_timeout=0.1))
    assert player.hung_threads() == ["work"] * 3
    release.set()
    for _ in range(100):
        if not player.hung_threads():
            break
        time.sleep(0.02)
    assert player.hung_threads() == []


def test_too_many_hung_threads_stop_further_calls_with_the_cause(codec):
    release = threading.Event()

    @function_tool
    def work() -> str:
        """Hangs."""
        release.wait(10)
        return "late"

    limits = Limits(tool_timeout=0.1, hung_threads=2, max_concurrency=1)
    played, _ = play_many(Agent(name="a", tools=[work]), codec, 4, limits)
    release.set()
    endings = [each.ending for each in played]
    assert endings == [
        Ending.ANSWERED,
        Ending.ANSWERED,
        Ending.INFRASTRUCTURE_ERROR,
        Ending.INFRASTRUCTURE_ERROR,
    ]
    assert "2 threads hang in work" in played[3].detail


def test_a_concurrency_limit_holds_for_each_tool(codec):
    running, most, guard = 0, 0, threading.Lock()

    @function_tool
    def work() -> str:
        """Counts itself."""
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with guard:
            running -= 1
        return "ok"

    limits = Limits(tool_concurrency_by_name={"work": 3})
    played, _ = play_many(Agent(name="a", tools=[work]), codec, 12, limits)
    assert most == 3
    assert all(each.tool_calls[0].result == "ok" for each in played)


def test_waiting_for_a_slot_is_not_counted_against_the_deadline(codec):
    @function_tool
    def work() -> str:
        """Takes a while."""
        time.sleep(0.05)
        return "ok"

    limits = Limits(tool_concurrency_by_name={"work": 1}, tool_timeout=0.3)
    played, _ = play_many(Agent(name="a", tools=[work]), codec, 12, limits)
    assert [each.tool_calls[0].failure for each in played] == [None] * 12


def test_the_calls_of_one_turn_run_in_order(codec):
    order = []

    @function_tool
    async def work(n: int) -> str:
        """Later calls are faster."""
        await asyncio.sleep(0.03 / (n + 1))
        order.append(n)
        return str(n)

    turn = "\n".join(call("work", n=n) for n in range(3))
    played = play_script(Agent(name="a", tools=[work]), [turn, "done"], codec)
    assert order == [0, 1, 2]
    assert [c.result for c in played.tool_calls] == ["0", "1", "2"]


def test_a_rollout_has_a_deadline(codec):
    @function_tool
    async def work() -> str:
        """Takes long."""
        await asyncio.sleep(0.2)
        return "ok"

    limits = Limits(rollout_timeout=0.3, max_turns=51)
    played = play_script(Agent(name="a", tools=[work]), [call("work")] * 50, codec, limits=limits)
    assert played.ending is Ending.ROLLOUT_DEADLINE
    assert not played.ending.is_judged


def test_waiting_for_a_lockstep_batch_does_not_count_against_deadlines(codec):
    class SlowBatches(ScriptedPolicy):
        samples_in_lockstep = True

        async def sample(self, request):
            await asyncio.sleep(0.15)
            return await super().sample(request)

    async def play():
        policy = SlowBatches(lambda request: [call("work"), "done"][request.key.turn], codec)
        player = Player(Agent(name="a", tools=[work]), policy, limits=Limits(rollout_timeout=0.1))
        return await player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "go")))

    @function_tool
    async def work() -> str:
        """Quick."""
        return "ok"

    assert asyncio.run(play()).ending is Ending.ANSWERED


def test_a_tool_whose_own_timeout_fires_has_failed_by_itself(codec):
    @function_tool
    def work() -> str:
        """Its own business timed out."""
        raise TimeoutError("the database is slow")

    played = play_script(Agent(name="a", tools=[work]), [call("work"), "done"], codec)
    assert played.tool_calls[0].failure is CallFailure.RAISED
    assert "the database is slow" in played.tool_calls[0].result


def test_a_failure_is_noted_whoever_words_it(codecs):
    @function_tool(failure_error_function=lambda context, error: f"sorry: {error}")
    def broken() -> str:
        """Break."""
        raise ValueError("no luck")

    played = play_script(Agent(name="a", tools=[broken]), [call("broken"), "ok"], codecs["qwen3"])
    (made,) = played.tool_calls
    assert (made.result, made.failure) == ("sorry: no luck", CallFailure.RAISED)


def test_a_result_longer_than_its_own_limit_is_cut_off_with_a_note(codec):
    @function_tool
    def work(size: int) -> str:
        """Say a lot."""
        return "word " * size

    replies = [call("work", size=2), call("work", size=500), "done"]
    limits = Limits(completion_tokens=4096, result_tokens=40)
    played = play_script(Agent(name="a", tools=[work]), replies, codec, limits=limits)
    short, long = (each.result for each in played.tool_calls)
    assert short == "word word "
    assert long.startswith("word word")
    assert "(cut off: 2,500 characters" in long
    assert codec.tokens_in(long) <= 40
    assert played.answer == "done"


def test_a_result_that_is_no_text_is_cut_off_like_the_text_that_the_model_reads(codec):
    @function_tool
    def work(size: int) -> list[str]:
        """Say a lot."""
        return ["word"] * size

    replies = [call("work", size=2), call("work", size=500), "done"]
    limits = Limits(completion_tokens=4096, result_tokens=40)
    played = play_script(Agent(name="a", tools=[work]), replies, codec, limits=limits)
    short, long = (each.result for each in played.tool_calls)
    assert short == "['word', 'word']"
    assert "(cut off: " in long
    assert codec.tokens_in(long) <= 40


def test_a_result_of_a_declared_type_stays_whole(codec):
    class Words(BaseModel):
        words: list[str]

    @function_tool(output_type=Words)
    def work(size: int) -> Words:
        """Say a lot."""
        return Words(words=["word"] * size)

    limits = Limits(completion_tokens=4096, result_tokens=40)
    agent = Agent(name="a", tools=[work])
    played = play_script(agent, [call("work", size=99), "done"], codec, limits=limits)
    assert played.answer == "done"
    assert "(cut off" not in played.tool_calls[0].result
