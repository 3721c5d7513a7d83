"""Making rollouts and playing scripts, in few words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agents import Agent

from sparring.contracts.cases import Case
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey, ToolCall
from sparring.contracts.specs import Limits
from sparring.player import Play, Player
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy


def rollout(answer: str = "", expected: Any = None, **fields: Any) -> Rollout:
    case = Case(fields.pop("id", "c"), "question", expected, measures=fields.pop("measures", ()))
    calls = tuple(
        call if isinstance(call, ToolCall) else ToolCall("1", call, "{}")
        for call in fields.pop("tools", ())
    )
    key = RolloutKey(0, 0, case.id, fields.pop("index", 0))
    ending = fields.pop("ending", Ending.ANSWERED)
    return Rollout(key, case, ending, answer, tool_calls=calls, **fields)


def call(tool: str, **arguments: Any) -> str:
    """A tool call as Hermes, Qwen and SmolLM2 write it."""
    body = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def play_script(
    agent: Agent[Any],
    replies: Sequence[str],
    codec: ChatCodec,
    *,
    limits: Limits | None = None,
    context: Any = None,
    input: Any = "question",
) -> Rollout:
    """Play one rollout whose model says these texts, one per turn; then it stays silent."""

    def script(request: SampleRequest) -> str:
        turn = request.key.turn
        return replies[turn] if turn < len(replies) else ""

    player = Player(agent, ScriptedPolicy(script, codec), limits=limits, context=context)
    play = Play(RolloutKey(0, 0, "c", 0), Case("c", input))
    return asyncio.run(player.play_one(play))
