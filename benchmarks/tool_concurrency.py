"""Measures 64 rollouts with a tool that takes 0.2 s, from the first call's start to the last's end.

Plays them with a plain tool and with an async tool, and again one rollout after another: the
transcripts must be the same. Bar: at most 1.0 s. One after another, as in TRL's own loop, the calls
would take 12.8 s.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from agents import Agent, function_tool

from sparring.contracts.cases import Case
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.specs import Limits
from sparring.models.tiny import build_tokenizer
from sparring.player import Play, Player
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy

ROLLOUTS, TOOL_SECONDS, BAR_SECONDS = 64, 0.2, 1.0


def script(request: SampleRequest) -> str:
    if request.key.turn == 0:
        number = int(request.key.rollout.case_id)
        return f'<tool_call>\n{{"name": "look", "arguments": {{"number": {number}}}}}\n</tool_call>'
    return f"It is {request.key.rollout.case_id}."


def agent_with(kind: str, times: list[float]) -> Agent[Any]:
    def plain(number: int) -> str:
        times.append(time.monotonic())
        time.sleep(TOOL_SECONDS)
        times.append(time.monotonic())
        return f"found {number}"

    async def asynchronous(number: int) -> str:
        times.append(time.monotonic())
        await asyncio.sleep(TOOL_SECONDS)
        times.append(time.monotonic())
        return f"found {number}"

    tool = plain if kind == "plain" else asynchronous
    return Agent(name="looker", tools=[function_tool(tool, name_override="look")])


async def play(
    kind: str, in_flight: int, rollouts: int, codec: ChatCodec
) -> tuple[float, list[Rollout]]:
    times: list[float] = []
    policy = ScriptedPolicy(script, codec)
    player = Player(agent_with(kind, times), policy, limits=Limits(max_concurrency=in_flight))
    plays = [
        Play(RolloutKey(0, 0, str(n), 0), Case(str(n), f"Look up {n}.")) for n in range(rollouts)
    ]
    played = [each.rollout async for each in player.play(plays)]
    return max(times) - min(times), sorted(played, key=lambda rollout: int(rollout.case.id))


def main() -> int:
    codec = ChatCodec(build_tokenizer(), family_named("qwen3"))
    figures: dict[str, Any] = {
        "rollouts": ROLLOUTS,
        "tool_timeout": TOOL_SECONDS,
        "bar_seconds": BAR_SECONDS,
    }
    for kind in ("plain", "async"):
        asyncio.run(play(kind, 4, 4, codec))  # warm-up: imports and caches
        seconds, together = asyncio.run(play(kind, ROLLOUTS, ROLLOUTS, codec))
        _, alone = asyncio.run(play(kind, 1, ROLLOUTS, codec))
        figures[f"{kind}_seconds"] = round(seconds, 3)
        figures[f"{kind}_same_transcripts"] = together == alone
        print(f"{kind} tool: {seconds:.2f} s together; same transcripts: {together == alone}")
    figures["passed"] = all(
        figures[f"{kind}_seconds"] <= BAR_SECONDS and figures[f"{kind}_same_transcripts"]
        for kind in ("plain", "async")
    )
    print(json.dumps(figures))
    return 0 if figures["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
