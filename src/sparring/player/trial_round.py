"""Plays a scripted round to find obstacles to training that only appear during play: instructions
or tools that change, message parts that are not text, prompts that are too long for the model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from sparring.contracts.cases import Case
from sparring.contracts.json import JsonObject
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import Ending, Message, RequestedCall, Rollout, RolloutKey
from sparring.contracts.specs import Limits
from sparring.player.external_agent import PlayedAgent
from sparring.player.player import ContextFactory, Play, Player
from sparring.player.worlds import end_world
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.threads import run_in_own_loop

_UNLIMITED_TOKENS = 1 << 20
_UNKNOWN_TOOL = "sparring_trial"


def trial_round(
    agent: PlayedAgent,
    codec: ChatCodec,
    cases: Sequence[Case],
    *,
    context: ContextFactory | None,
    examples: Sequence[JsonObject] = (),
    budget: int,
    positions: int | None,
    one_row_reason: str = "",
) -> list[str]:
    """Return the obstacles to training on these cases, as messages without duplicates.

    The scripted model calls a tool that does not exist and answers after the error, so no tool is
    run. `budget` is max_completion_length and `positions` the model's maximum sequence length, both
    in tokens. If rollouts must have a single row, `one_row_reason` is the reason; else it is empty.
    """
    limits = Limits(max_turns=3, completion_tokens=_UNLIMITED_TOKENS)
    policy = ScriptedPolicy(_call_unknown_tool, codec)
    player = Player(agent, policy, limits=limits, context=context, examples=examples)
    plays = [Play(RolloutKey(0, 0, case.id, 0), case) for case in cases]
    rollouts = run_in_own_loop(play_unjudged(player, plays))
    problems = [problem for rollout in rollouts if (problem := _problem(rollout, one_row_reason))]
    longest = max((row.spans[0].length for rollout in rollouts for row in rollout.rows), default=0)
    if positions is not None and longest + budget > positions:
        problems.append(
            f"the longest prompt has {longest:,} tokens and max_completion_length is {budget:,}, "
            f"but the model has {positions:,} positions; shorten the prompt, or lower "
            "max_completion_length"
        )
    return list(dict.fromkeys(problems))


def longest_cases(cases: Sequence[Case], number: int = 3) -> list[Case]:
    """Return the `number` cases with the longest inputs in characters, longest first."""
    return sorted(cases, key=lambda case: len(str(case.input)), reverse=True)[:number]


def _call_unknown_tool(request: SampleRequest) -> Message:
    if request.key.turn == 0:
        return Message("assistant", "", calls=(RequestedCall("trial", _UNKNOWN_TOOL, "{}"),))
    return Message("assistant", "Done.")


async def play_unjudged(player: Player, plays: Sequence[Play]) -> list[Rollout]:
    """Play the rollouts and return them unjudged. Each world ends as soon as its rollout does."""
    rollouts = []
    async with aclosing(player.play(plays)) as stream:
        async for played in stream:
            rollouts.append(played.rollout)
            await end_world(played.rollout.world)
    return rollouts


def _problem(rollout: Rollout, one_row_reason: str) -> str:
    if rollout.ending in (Ending.INFRASTRUCTURE_ERROR, Ending.NO_MODEL_CALL):
        return rollout.detail
    if len(rollout.rows) > 1 and one_row_reason:
        return (
            "its instructions or tools change during a rollout, so that one rollout has several "
            f"rows: {one_row_reason}"
        )
    return ""
