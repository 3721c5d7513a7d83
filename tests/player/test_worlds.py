"""Worlds: what becomes a tool, what a failing one tells the model, and when a world ends."""

from __future__ import annotations

import asyncio

import pytest
from agents import Agent

from sparring import measure, passed, tool
from sparring.contracts.cases import Case
from sparring.contracts.rollouts import CallFailure, Ending, RolloutKey
from sparring.learning.rollout_collector import play_and_judge
from sparring.measures import MeasureSet
from sparring.player import Play, Player
from sparring.player.worlds import end_world, world_tools
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.rollouts import call, play_script

AGENT = Agent(name="a")


@pytest.fixture
def codec(codecs):
    return codecs["qwen3"]


class Shelf:
    """Things with places."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.has_ended = False

    @tool
    def take(self, place: int) -> str:
        """Take what is there."""
        if place > 9:
            raise ValueError("the shelf has nine places")
        self.taken.append(place)
        return "taken"

    @tool
    async def count(self) -> int:
        """How many were taken."""
        return len(self.taken)

    def burn(self) -> str:
        """Not declared, so no tool."""
        return "ashes"

    def after_rollout(self) -> None:
        self.has_ended = True


def test_only_what_is_declared_becomes_a_tool():
    assert sorted(each.name for each in world_tools(Shelf())) == ["count", "take"]


def test_a_world_may_offer_some_of_its_tools_only():
    shelf = Shelf()
    shelf.offered_tools = ("take",)
    assert [each.name for each in world_tools(shelf)] == ["take"]


def test_wrong_arguments_of_a_worlds_tool_are_an_error_that_the_model_reads(codec):
    played = play_script(AGENT, [call("take", place="third"), "sorry"], codec, context=Shelf)
    assert played.ending is Ending.ANSWERED
    assert played.tool_calls[0].failure is CallFailure.RAISED
    assert played.tool_calls[0].result == "take failed: place: 'third' is not of type 'integer'"


def test_a_method_that_raises_tells_the_model_why(codec):
    played = play_script(AGENT, [call("take", place=12), "sorry"], codec, context=Shelf)
    assert played.ending is Ending.ANSWERED
    assert played.tool_calls[0].result == "take failed: ValueError: the shelf has nine places"


def test_the_final_state_is_there_for_a_measure(codec):
    replies = [call("take", place=2), call("take", place=3), call("count"), "two"]
    played = play_script(AGENT, replies, codec, context=Shelf)
    assert played.world.taken == [2, 3]
    assert played.tool_calls[-1].result == "2"


@measure
def sees_a_live_world(rollout):
    return passed("it lives") if not rollout.world.has_ended else 1 / 0


class OnePlay:
    """A player that has one rollout to hand on."""

    def __init__(self, rollout) -> None:
        self.rollout = rollout

    async def play(self, plays):
        from sparring.player import Played

        yield Played(self.rollout, 0.0)


def test_a_world_ends_when_it_has_been_judged_and_not_before(codec):
    rollout = play_script(AGENT, ["hi"], codec, context=Shelf)
    assert not rollout.world.has_ended
    plays = [Play(rollout.key, rollout.case)]
    measures = MeasureSet.of([sees_a_live_world])
    (judged,) = asyncio.run(play_and_judge(OnePlay(rollout), measures, plays))
    assert judged.rollout.reward == 1.0
    assert rollout.world.has_ended


@pytest.mark.parametrize(("context", "offers"), [(Shelf, True), (None, False)])
def test_tools_of_a_world_are_offered_to_the_agent(codec, context, offers):
    player = Player(AGENT, ScriptedPolicy(lambda _: "hi", codec), context=context)
    plays = [Play(RolloutKey(0, 0, "c", 0), Case("c", "?"))]
    (played,) = asyncio.run(play_and_judge(player, MeasureSet.of([sees_a_live_world]), plays))
    assert played.offers_tools is offers


class Stubborn(Shelf):
    def after_rollout(self) -> None:
        raise KeyError("the key")


class Endless(Shelf):
    async def after_rollout(self) -> None:
        await asyncio.sleep(3600)


def test_a_world_that_cannot_be_ended_is_logged_and_ends_nothing_else(caplog):
    asyncio.run(end_world(Stubborn()))
    assert "after_rollout of Stubborn: KeyError: 'the key'" in caplog.text
    assert "test_worlds.py" in caplog.text
    asyncio.run(end_world(Endless(), seconds=0.01))
    assert "after_rollout of Endless took more than 0.01 s" in caplog.text


@pytest.mark.parametrize("kind", [dict, list])
def test_a_context_without_after_rollout_is_left_alone(codec, kind):
    assert play_script(AGENT, ["hi"], codec, context=kind).world == kind()
