"""A chat with an agent outside of the SDK: each message is a rollout."""

import asyncio
import io

import pytest
from rich.console import Console

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.specs import PlaySettings
from sparring.environments.task import Task
from sparring.jobs.chat import talk
from sparring.jobs.program_chat import ProgramConversation
from sparring.measures import MeasureSet
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.suites import Suite
from tests.gateway.playing import ADD, calls_tool, gateway_agent, plain_play


def conversation(function, codec):
    suite = Suite.from_records([{"input": f"What is {number} + 3?"} for number in range(60)])
    task = Task(agent=gateway_agent(function), suite=suite, measures=MeasureSet((), {}))
    policy = ScriptedPolicy(calls_tool(ADD), codec)
    return ProgramConversation(task, policy, PlaySettings())


def test_calls_results_and_the_answer_are_shown(codecs, monkeypatch):
    lines = iter(["What is 2 + 3?\n", "/quit\n"])
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(lines)))
    out = io.StringIO()
    asyncio.run(talk(conversation(plain_play(), codecs["qwen3"]), Console(file=out, width=200)))
    shown = out.getvalue()
    assert '→ add({"a": 2, "b": 3})' in shown
    assert "It is 5." in shown


def test_an_agent_that_makes_no_call_says_why(codecs):
    async def play(case, session):
        return "5"

    async def say():
        chat = conversation(play, codecs["qwen3"])
        await chat.begin()
        await chat.say("hello")

    with pytest.raises(InfrastructureError, match="without a model call"):
        asyncio.run(say())
