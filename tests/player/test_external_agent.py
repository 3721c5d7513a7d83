"""An agent that brings its own loop is played with an episode per rollout, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, RolloutKey
from sparring.player import Play, Player
from sparring.player.external_agent import ExternalAgent
from sparring.player.trainability import has_tools, reached_agents, refuse_untrainable
from sparring.policies.scripted_policy import ScriptedPolicy


class Counting(ExternalAgent):
    """Answers with the case, or raises; notes what the player does with it."""

    name = "counting"

    def __init__(self, error=None):
        self.error = error
        self.log = []

    @asynccontextmanager
    async def opened(self):
        self.log.append("opened")
        yield
        self.log.append("closed")

    def begin(self, episode, policy, temperature):
        self.log.append((episode.case.id, policy.name, temperature))
        return CountingRun(self, episode)

    def notes(self, temperature):
        return []


class CountingRun:
    def __init__(self, agent, episode):
        self._agent, self._episode = agent, episode

    async def run(self, world):
        if self._agent.error is not None:
            raise self._agent.error
        self._episode.answer = f"{self._episode.case.input} in {world}"
        return [self._episode.answer]

    def rows(self):
        return []


def play(agent, codec):
    player = Player(
        agent, ScriptedPolicy(lambda _: "", codec), temperature=0.5, context=lambda: "world"
    )

    async def both():
        plays = [Play(RolloutKey(0, 0, each, 0), Case(each, each)) for each in ("a", "b")]
        return [played.rollout async for played in player.play(plays)]

    return sorted(asyncio.run(both()), key=lambda rollout: rollout.case.id)


def test_an_external_agent_is_opened_once_and_begun_for_each_rollout(codecs):
    agent = Counting()
    rollouts = play(agent, codecs["qwen3"])
    assert agent.log == ["opened", ("a", "scripted", 0.5), ("b", "scripted", 0.5), "closed"]
    assert [rollout.answer for rollout in rollouts] == ["a in world", "b in world"]
    assert [rollout.output for rollout in rollouts] == [["a in world"], ["b in world"]]
    assert all(rollout.ending is Ending.ANSWERED for rollout in rollouts)


def test_an_error_ends_its_rollouts_and_not_the_player(codecs):
    rollouts = play(Counting(OSError("disk full")), codecs["qwen3"])
    assert [rollout.ending for rollout in rollouts] == [Ending.INFRASTRUCTURE_ERROR] * 2
    assert rollouts[0].detail == "OSError: disk full"


def test_tools_and_agents_of_an_external_agent_are_unknown_before_it_plays():
    agent = Counting()
    assert (agent.model, agent.tools) == (None, ())
    assert not has_tools(agent)
    assert list(reached_agents(agent)) == []
    refuse_untrainable(agent, 0.8, ["any name"])


def test_an_agent_without_the_three_methods_cannot_be_made():
    class Half(ExternalAgent):
        name = "half"

    with pytest.raises(TypeError, match="abstract"):
        Half()
