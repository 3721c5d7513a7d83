"""The same agents through both doors, the SDK and HTTP: equal prompts, rows and seeds.

An agent hands over to another, and that one to a third. Random conversations begin, go on, branch
off at an earlier turn or are tried again. Some replies are preceded by thinking, which the template
drops.

The doors differ in three ways. HTTP knows which replies the agent never used, and leaves them out
of other rows. It continues the row of an agent that gets a conversation back. It seeds a call by
its place in the conversation, because calls may come at once, and the SDK by the number of the
turn: equal as long as there is one conversation of one agent.
"""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from agents import Agent, Runner, function_tool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI

from sparring.contracts.cases import Case
from sparring.contracts.policies import Policy, Sample, SampleKey, SampleRequest
from sparring.contracts.rollouts import Message, RequestedCall, Rollout, RolloutKey, TokenRow
from sparring.contracts.specs import Limits
from sparring.gateway.agents import FunctionProgram, GatewayAgent
from sparring.gateway.server import GatewayServer
from sparring.player import Play, Player
from sparring.player.episode import Episode
from sparring.player.external_agent import ExternalAgent
from sparring.player.recorder import Recorder, rows_of
from sparring.player.sdk_model import EpisodeModel
from sparring.player.tools import ToolStage
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.threads import DaemonThreads
from tests.gateway.plain_loop import completed

LIMITS = Limits(completion_tokens=1 << 20, max_turns=61)
SYSTEM = {"desk": "Sort it. ä", "clerk": "File it.", "archive": "Keep it."}
NEXT = {"desk": "clerk", "clerk": "archive"}
KEY = RolloutKey(3, 1, "c", 2)


@function_tool
def echo(text: str) -> str:
    """Say it back."""
    return f"{text} {text}"


def crew() -> dict[str, Agent[Any]]:
    agents = {name: Agent(name=name, instructions=SYSTEM[name], tools=[echo]) for name in SYSTEM}
    for name, following in NEXT.items():
        agents[name].handoffs.append(agents[following])
    return agents


@dataclass(frozen=True)
class Step:
    """A run of the agents: on a new question, on one more message after the conversation of an
    earlier run, or on what an earlier run began with. The last conversation is number 0."""

    kind: str
    place: int = 0

    def begin(self, number: int, runs: list[tuple[Any, Any]], start: Any) -> Any:
        """Return what this run begins with: messages and an agent."""
        if not runs or self.kind == "start":
            return [user(f"Question {number}")], start
        before, after = runs[-1 - self.place % len(runs)]
        if self.kind == "retry":
            return before
        messages, agent = after
        return [*messages, user(f"More {number}")], agent


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


class Scripted(ScriptedPolicy):
    """Makes the replies of a script, each unlike all others, and keeps keys and prompts."""

    def __init__(self, codec: ChatCodec, script: list[str]) -> None:
        super().__init__(self._next, codec)
        self.kinds = script
        self.keys: list[SampleKey] = []
        self.prompts: list[array[int]] = []

    def _next(self, request: SampleRequest) -> Message | str:
        number = len(self.keys) - 1
        kind = self.kinds[number] if number < len(self.kinds) else "answer"
        if kind == "answer":
            return Message("assistant", f"Answer {number}")
        if kind == "think":
            return f"<think>Hm {number}</think>Answer {number}"
        prompt = self.codec.decode(request.prompt)
        name, arguments = "echo", json.dumps({"text": f"word {number}"})
        (agent,) = [each for each, system in SYSTEM.items() if system in prompt]
        if kind == "hand over" and agent in NEXT:
            name, arguments = f"transfer_to_{NEXT[agent]}", "{}"
        return Message("assistant", "", calls=(RequestedCall("c", name, arguments),))

    async def sample(self, request: SampleRequest) -> Sample:
        self.keys.append(request.key)
        self.prompts.append(array("i", request.prompt))
        sample = await super().sample(request)
        logprobs = array("f", [-len(self.keys) / 64] * len(sample.ids))
        return Sample(sample.ids, logprobs, sample.finish, len(self.keys) % 2)


class SdkAgent(ExternalAgent):
    """Runs the crew with the SDK, once for each step, in one rollout."""

    name = "sdk"

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield

    def notes(self, temperature: float) -> list[str]:
        return []

    def begin(self, episode: Episode, policy: Policy, temperature: float) -> SdkRuns:
        self.runs = SdkRuns(self.steps, episode, Recorder(policy, episode), temperature)
        return self.runs


class SdkRuns:
    def __init__(
        self, steps: list[Step], episode: Episode, recorder: Recorder, temperature: float
    ) -> None:
        self.steps = steps
        self.recorder = recorder
        stage = ToolStage(LIMITS, DaemonThreads(1), None)
        self.model = EpisodeModel(episode, recorder, stage, temperature)

    def rows(self) -> list[TokenRow]:
        return self.recorder.rows()

    async def run(self, world: Any) -> str:
        runs: list[tuple[Any, Any]] = []
        agents = crew()
        for number, step in enumerate(self.steps):
            items, agent = step.begin(number, runs, agents["desk"])
            config = self.model.run_config(None)
            result = await Runner.run(agent, items, max_turns=50, run_config=config)
            runs.append(((items, agent), (result.to_input_list(), result.last_agent)))
        return "done"


def http_agent(steps: list[Step], server: GatewayServer) -> GatewayAgent:
    """Runs the crew as a plain loop over an OpenAI client."""
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}

    def tools(name: str) -> list[dict[str, Any]]:
        offered = [(echo.name, echo.description, echo.params_json_schema)]
        if following := NEXT.get(name):
            described = f"Handoff to the {following} agent to handle the request. "
            offered.append((f"transfer_to_{following}", described, schema))
        return [
            {
                "type": "function",
                "function": {"name": name, "description": text, "parameters": parameters},
            }
            for name, text, parameters in offered
        ]

    async def play(case: Case, session: Any) -> str:
        runs: list[tuple[Any, Any]] = []
        async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as client:
            for number, step in enumerate(steps):
                given, agent = step.begin(number, runs, "desk")
                messages, first = list(given), agent
                while True:
                    system = {"role": "system", "content": SYSTEM[agent]}
                    reply = await completed(client, "m", [system, *messages], tools(agent))
                    messages.append(reply)
                    for call in reply.get("tool_calls", ()):
                        made, result = call["function"], ""
                        if made["name"] == "echo":
                            text = json.loads(made["arguments"])["text"]
                            result = f"{text} {text}"
                        else:
                            agent = NEXT[agent]
                            result = json.dumps({"assistant": agent})
                        answer = {"tool_call_id": call["id"], "content": result}
                        messages.append({"role": "tool", **answer})
                    if "tool_calls" not in reply:
                        break
                runs.append(((given, first), (messages, agent)))
        return "done"

    label = {system: name for name, system in SYSTEM.items()}
    return GatewayAgent(
        "http",
        FunctionProgram(play),
        label=lambda call: label[call.system],
        make_server=lambda: server,
    )


def played(agent: ExternalAgent, policy: Policy) -> Rollout:
    player = Player(agent, policy, limits=LIMITS)
    return asyncio.run(player.play_one(Play(KEY, Case("c", "Question 0"))))


def tokens_of(row: TokenRow) -> tuple[Any, ...]:
    return (
        row.ids,
        row.logprobs,
        row.agent,
        row.spans,
        row.bodies,
        row.versions,
        row.is_discarded,
    )


def number_of(logprob: float) -> int:
    """Return the number of the turn that has this log-probability."""
    return round(-logprob * 64) - 1


def plain_turns(steps: list[Step], script: list[str]) -> int:
    """Return how many turns from the first belong to one conversation of one agent."""
    turns = 0
    for runs, step in enumerate(steps):
        if runs and (step.kind != "continue" or step.place % runs):
            return turns
        for kind in [*script[turns:], "answer"]:
            turns += 1
            if kind == "hand over":
                return turns
            if kind != "echo":
                break
    return turns


kinds = st.sampled_from(["start", "continue", "continue", "continue", "retry"])
steps_drawn = st.lists(st.builds(Step, kinds, st.integers(0, 3)), min_size=1, max_size=6)
scripts = st.lists(st.sampled_from(["echo", "echo", "hand over", "answer", "think"]), max_size=12)


@pytest.fixture(scope="module")
def codec(codecs: dict[str, ChatCodec]) -> ChatCodec:
    return ChatCodec(codecs["qwen3"].tokenizer, family_named("qwen3"))


@pytest.fixture(scope="module")
def server() -> GatewayServer:
    return GatewayServer()


@settings(
    max_examples=30,
    suppress_health_check=list(HealthCheck),
)
@given(steps=steps_drawn, script=scripts)
def test_both_doors_make_the_same_rows_with_the_same_seeds(
    codec: ChatCodec, server: GatewayServer, steps: list[Step], script: list[str]
) -> None:
    sdk, http = Scripted(codec, script), Scripted(codec, script)
    agent = SdkAgent(steps)
    ours, theirs = played(agent, sdk), played(http_agent(steps, server), http)
    assert ours.detail == theirs.detail == ""
    assert sdk.prompts == http.prompts
    unused = {number_of(each) for row in theirs.rows if row.is_discarded for each in row.logprobs}
    turns = {turn.number: turn for turn in agent.runs.recorder.turns}
    rows = rows_of(turns.values(), {turns[number] for number in unused})
    assert [tokens_of(row) for row in rows] == [tokens_of(row) for row in theirs.rows]
    if not unused:
        assert rows == list(ours.rows)
    for ours_, theirs_ in zip(rows, theirs.rows, strict=True):
        if turns[number_of(ours_.logprobs[0])].is_continuation:  # a branch
            assert (ours_.start, ours_.parent) == (theirs_.start, theirs_.parent)
    assert sdk.keys == [SampleKey(KEY, number) for number in range(len(sdk.keys))]
    plain = plain_turns(steps, script)
    assert plain >= 1
    assert http.keys[:plain] == sdk.keys[:plain]
