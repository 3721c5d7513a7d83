"""How environments declare agents outside of the SDK."""

import asyncio
import sys
from pathlib import Path

import pytest
from agents import Agent

from sparring import Environment, Suite
from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Ending
from sparring.environments.environment import read_agent
from sparring.gateway.agents import FunctionProgram, GatewayAgent
from sparring.gateway.processes import CommandProgram, ReusedProgram
from sparring.gateway.remote import RemoteProgram
from sparring.gateway.sandboxed import SandboxedProgram
from sparring.player import Player
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.sandbox import probe
from tests.gateway.playing import plain_play, plays


class Base(Environment):
    model = "tiny"
    measures = ("exact",)

    def suite(self):
        return Suite.from_records([{"input": str(n), "expected": str(n)} for n in range(300)])


class Played(Base):
    async def play(self, case, session):
        return await plain_play()(case, session)


class Commanded(Base):
    command = (sys.executable, "agent.py")


class Reused(Commanded):
    reuse = True


class Served(Base):
    url = "http://127.0.0.1:9/rollout"


class WithoutUrl(Commanded):
    url = ""  # an environment variable that is not set


class Sandboxed(Commanded):
    needs_sandbox = True
    command_files = (Path(__file__).name,)


@pytest.mark.parametrize(
    ("environment", "program"),
    [
        (Played, FunctionProgram),
        (Commanded, CommandProgram),
        (Reused, ReusedProgram),
        (Served, RemoteProgram),
        (WithoutUrl, CommandProgram),
        pytest.param(
            Sandboxed,
            SandboxedProgram,
            marks=pytest.mark.skipif(not probe().works, reason="needs bubblewrap"),
        ),
    ],
)
def test_each_way_has_its_program(environment, program):
    agent = read_agent(environment())
    assert isinstance(agent, GatewayAgent)
    assert isinstance(agent.program, program)
    assert (agent.name, agent.model) == (environment.__name__, "tiny")


def test_an_unsandboxed_command_still_runs_in_the_workspace():
    environment = Sandboxed()
    environment.is_unsandboxed = True
    assert isinstance(read_agent(environment).program, SandboxedProgram)


def test_an_environment_has_one_agent():
    class Both(Played):
        def agent(self):
            return Agent(name="a")

    with pytest.raises(InvalidInput, match="declares agent and play"):
        read_agent(Both())


def test_a_program_talks_to_its_user_itself():
    class WithUser(Played):
        async def user(self, case, world, conversation):
            return None

    with pytest.raises(InvalidInput, match="declares play and user"):
        read_agent(WithUser())


def test_a_sandboxed_process_is_not_reused():
    class Impossible(Sandboxed):
        reuse = True

    with pytest.raises(InvalidInput, match="reuse and needs_sandbox"):
        read_agent(Impossible())


def test_the_environments_label_names_the_agent_of_a_call(codecs):
    class Labelled(Played):
        def label(self, call):
            return "auxiliary"

    player = Player(read_agent(Labelled()), ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    rollout = asyncio.run(player.play_one(plays()[0]))
    assert rollout.ending is Ending.ANSWERED, rollout.detail
    assert [row.agent for row in rollout.rows] == ["auxiliary"]
