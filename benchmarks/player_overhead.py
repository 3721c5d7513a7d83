"""Compares the player with the bare SDK: CPU per turn, and memory per rollout in flight.

Plays five-turn rollouts with one tool and a scripted model, alternately with the bare SDK `Runner`;
with the player and a scripted chat policy, which does the same work; and with the player and a
token policy, whose prompts the player also tokenises and splices, and whose replies it parses. The
replies of the token policy are ids from the start, as sampled ones are.

Bars: the player takes at most 1.2 times the CPU of the bare Runner with the chat policy, and 1.25
times with the token policy, at 16, 256 and 2,048 rollouts in flight; memory per rollout in flight
is flat. `--quick` allows a third more, because a few rounds on a busy machine tell little.

The bare Runner gets a clone of the agent for each run, as the player does. With one shared Agent
object, the SDK compares its tools, at every turn, with those of every other run in flight
(`agent_tool_configuration._observe_tools`), so its cost per turn grows with their number;
`shared_ms_per_turn` shows this growth.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import subprocess
import sys
import threading
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from sparring.contracts.cases import Case
from sparring.contracts.policies import (
    ChatReply,
    ChatRequest,
    Finish,
    ParsedCall,
    Reply,
    Sample,
    SampleRequest,
)
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.specs import Limits
from sparring.models.tiny import build_tokenizer
from sparring.player import Play, Player
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy

TURNS = 5
BARS = {"chat": 1.2, "token": 1.25}
QUICK_SLACK = 4 / 3
ARGUMENTS = '{"number": 7}'


@function_tool
async def look(number: int) -> str:
    """Look something up."""
    return f"found {number}"


AGENT: Agent[Any] = Agent(name="looker", instructions="Look things up.", tools=[look])


class BareModel(Model):
    """A minimal scripted model."""

    def __init__(self) -> None:
        self.turn = 0

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        await asyncio.sleep(0)
        self.turn += 1
        item: Any
        if self.turn < TURNS:
            item = ResponseFunctionToolCall(
                type="function_call",
                id=f"f{self.turn}",
                call_id=f"c{self.turn}",
                name="look",
                arguments=ARGUMENTS,
            )
        else:
            text = ResponseOutputText(type="output_text", text="It is 7.", annotations=[])
            item = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class ScriptedChat:
    """A chat policy with the same replies."""

    name = "scripted"

    async def reply(self, request: ChatRequest) -> ChatReply:
        await asyncio.sleep(0)
        if request.key.turn < TURNS - 1:
            return ChatReply(Reply("", calls=(ParsedCall("look", ARGUMENTS),)), Finish.STOP, 10, 10)
        return ChatReply(Reply("It is 7."), Finish.STOP, 10, 10)


class KeptReplies(ScriptedPolicy):
    """A token policy with the same replies. Their ids are kept: a model samples ids, and does not
    encode a text."""

    def __init__(self, codec: ChatCodec) -> None:
        super().__init__(lambda _: "", codec)
        call = f'<tool_call>\n{{"name": "look", "arguments": {ARGUMENTS}}}\n</tool_call>'
        self._kept = [self._encode(text) for text in [*[call] * (TURNS - 1), "It is 7."]]

    async def sample(self, request: SampleRequest) -> Sample:
        ids = self._kept[request.key.turn]
        return Sample(ids[:], array("f", bytes(4 * len(ids))), Finish.STOP)


async def play_bare(count: int) -> None:
    await asyncio.gather(*(_run_bare(AGENT.clone(tools=[*AGENT.tools])) for _ in range(count)))


async def play_shared(count: int) -> None:
    await asyncio.gather(*(_run_bare(AGENT) for _ in range(count)))


async def _run_bare(agent: Agent[Any]) -> None:
    config = RunConfig(model=BareModel(), tracing_disabled=True)
    await Runner.run(agent, "Look up 7.", run_config=config)


def play_ours(policy: Any) -> Callable[[int], Awaitable[None]]:
    async def play(count: int) -> None:
        player = Player(AGENT, policy, limits=Limits(max_concurrency=count))
        plays = (
            Play(RolloutKey(0, 0, str(n), 0), Case(str(n), "Look up 7.")) for n in range(count)
        )
        answers = [played.rollout.answer async for played in player.play(plays)]
        assert answers == ["It is 7."] * count

    return play


def cpu_per_turn(play: Callable[[int], Awaitable[None]], count: int, repeats: int) -> float:
    """Return the CPU milliseconds per turn."""
    gc.collect()
    started = _cpu()
    for _ in range(repeats):
        asyncio.run(play(count))  # type: ignore[arg-type]
    return (_cpu() - started) / (repeats * count * TURNS) * 1000


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_kib_per_rollout(count: int) -> float:
    """Return the peak growth of a new process in KiB per rollout, with the token policy."""
    command = [sys.executable, __file__, "--peak", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def print_peak(count: int) -> None:
    play = players()["token"]
    asyncio.run(play(16))  # type: ignore[arg-type]
    process, seen = psutil.Process(), [0]
    before, done = process.memory_info().rss, threading.Event()

    def poll() -> None:
        while not done.wait(0.02):
            seen.append(process.memory_info().rss)

    poller = threading.Thread(target=poll)
    poller.start()
    asyncio.run(play(count))  # type: ignore[arg-type]
    done.set()
    poller.join()
    print((max(seen) - before) / 1024 / count)


def players() -> dict[str, Callable[[int], Awaitable[None]]]:
    codec = ChatCodec(build_tokenizer(), family_named("qwen3"))
    return {
        "bare": play_bare,
        "chat": play_ours(ScriptedChat()),
        "token": play_ours(KeptReplies(codec)),
    }


def compare(count: int, repeats: int, rounds: int) -> dict[str, float]:
    """Measure all players in each round, in alternating order; compare their best rounds, because
    other load can only add time."""
    seen: dict[str, list[float]] = {name: [] for name in players()}
    for number in range(rounds):
        names = list(seen) if number % 2 else list(reversed(seen))
        for name in names:
            seen[name].append(cpu_per_turn(players()[name], count, repeats))
    cpu = {name: min(values) for name, values in seen.items()}
    return {
        "bare_ms_per_turn": round(cpu["bare"], 3),
        "ratio_chat": round(cpu["chat"] / cpu["bare"], 3),
        "ratio_token": round(cpu["token"] / cpu["bare"], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer in flight, a higher bar")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print_peak(options.peak)
        return 0
    largest = 1024 if options.quick else 2048
    for play in (*players().values(), play_shared):
        cpu_per_turn(play, 16, 1)
    sizes = {}
    plan = [(16, 8, 5), (256, 1, 3 if options.quick else 5)]
    for count, repeats, rounds in plan if options.quick else [*plan, (largest, 1, 1)]:
        sizes[str(count)] = compare(count, repeats, rounds)
        print(f"{count:>5} in flight: {sizes[str(count)]}", flush=True)
    shared = {str(count): round(cpu_per_turn(play_shared, count, 1), 2) for count in (16, 256)}
    print(f"one shared Agent object, bare SDK, ms per turn: {shared}", flush=True)
    memory = {str(count): round(peak_kib_per_rollout(count), 1) for count in (256, largest)}
    print(f"peak KiB per rollout in flight: {memory}", flush=True)
    flat = memory[str(largest)] <= 1.2 * memory["256"]
    slack = QUICK_SLACK if options.quick else 1
    bars = {name: round(bar * slack, 2) for name, bar in BARS.items()}
    passed = flat and all(
        size[f"ratio_{name}"] <= bar for size in sizes.values() for name, bar in bars.items()
    )
    figures = {"turns": TURNS, "bars": bars, "sizes": sizes, "shared_ms_per_turn": shared}
    print(json.dumps({**figures, "peak_kib_per_rollout": memory, "passed": passed}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
