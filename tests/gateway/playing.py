"""Plays agents through the gateway in tests, and the same agent on the SDK."""

import asyncio
import json

import httpx2
from agents import Agent, function_tool
from openai import AsyncOpenAI

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey
from sparring.contracts.specs import Limits
from sparring.gateway.agents import FunctionProgram, GatewayAgent
from sparring.player import Play, Player
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.plain_loop import SYSTEM
from tests.gateway.plain_loop import loop as plain_loop

QUESTION = "What is 2 + 3?"


@function_tool
def add(a: int, b: int) -> str:
    """Add two whole numbers."""
    return str(a + b)


@function_tool
def multiply(a: int, b: int) -> str:
    """Multiply two whole numbers."""
    return str(a * b)


SDK_AGENT = Agent(name="main", instructions=SYSTEM, tools=[add, multiply])
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        },
    }
    for tool in (add, multiply)
]


async def loop(client, model, messages, *, tools=TOOLS, **options):
    """The plain agent with the SDK agent's tools."""
    return await plain_loop(client, model, messages, tools, **options)


def plain_play(**options):
    async def play(case, session):
        async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as client:
            return await loop(client, session.model, session.messages, **options)

    return play


def gateway_agent(function, **options):
    return GatewayAgent("tested", FunctionProgram(function), **options)


def plays(number=1, question=QUESTION):
    return [
        Play(RolloutKey(0, 0, f"c{index}", 0), Case(f"c{index}", question))
        for index in range(number)
    ]


def play_all(agent, policy, to_play=None, *, temperature=0.8, **limits):
    """Return the rollouts of an agent, in the order of the plays."""
    player = Player(
        agent,
        policy,
        limits=Limits(**{"completion_tokens": 4096, **limits}),
        temperature=temperature,
    )

    async def all_of_them():
        found = [each.rollout async for each in player.play(to_play or plays())]
        return sorted(found, key=lambda rollout: rollout.case.id)

    return asyncio.run(all_of_them())


def play_one(function, policy, *, question=QUESTION, label=None, **limits):
    """Return the rollout of a function on one case."""
    agent = gateway_agent(function, label=label)
    (rollout,) = play_all(agent, policy, plays(1, question), **limits)
    return rollout


def calls_tool(*calls, then="It is 5."):
    """A script that makes these calls, one a turn, and answers."""

    def script(request):
        turn = request.key.turn
        if turn < len(calls):
            name, arguments = calls[turn]
            call = RequestedCall("scripted", name, json.dumps(arguments))
            return Message("assistant", "", calls=(call,))
        return then

    return script


ADD = ("add", {"a": 2, "b": 3})


def in_session(codec, script, work, **limits):
    """Play a rollout that does `await work(session, client)`, with an HTTP client whose base URL
    is the session's. Returns the rollout, and what the work returned."""
    found = []

    async def play(case, session):
        async with httpx2.AsyncClient(base_url=session.base_url, timeout=30) as client:
            found.append(await work(session, client))
        return "done"

    rollout = play_one(play, ScriptedPolicy(script, codec), **limits)
    assert found, rollout.detail
    return rollout, found[0]
