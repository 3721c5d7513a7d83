"""Plays rollouts, and judges each as soon as it ends."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from sparring.contracts.rollouts import RolloutKey
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.player.worlds import end_world

_WORLDS_AT_ONCE = 16  # that need a thread: each has a time limit, so few may wait for one


class Plays(Protocol):
    """A player of rollouts: `Player`, or `FunctionPlayer` for the user's rollout function."""

    def play(self, plays: Iterable[Play]) -> AsyncGenerator[Played]:
        """Yield each rollout when it ends."""
        ...


async def play_and_judge(
    player: Plays, measures: MeasureSet, plays: Sequence[Play]
) -> list[Played]:
    """Return the judged rollouts in the order of `plays`. Their worlds have ended: each when its
    rollout was judged or, with reward functions, when all were."""
    worlds: dict[RolloutKey, Any] = {}
    ending: list[asyncio.Task[None]] = []
    places = asyncio.Semaphore(_WORLDS_AT_ONCE)

    async def end(world: Any) -> None:
        needs_thread = not inspect.iscoroutinefunction(getattr(world, "after_rollout", None))
        async with places if needs_thread else nullcontext():
            await end_world(world)

    async def judge(played: Played) -> Played:
        rollout = await measures.judge(played.rollout)
        if not measures.reward_functions:
            ending.append(asyncio.create_task(end(worlds.pop(rollout.key))))
        return replace(played, rollout=rollout)

    order = {play.key: number for number, play in enumerate(plays)}
    judging: list[asyncio.Task[Played]] = []
    try:
        async with aclosing(player.play(plays)) as stream:
            async for played in stream:
                worlds[played.rollout.key] = played.rollout.world
                judging.append(asyncio.create_task(judge(played)))
        judged = list(await asyncio.gather(*judging))
        judged.sort(key=lambda played: order[played.rollout.key])
        together = await measures.judge_together([each.rollout for each in judged])
    finally:
        for task in judging:
            task.cancel()
        await asyncio.gather(*judging, return_exceptions=True)
        await asyncio.gather(*ending, *(end(world) for world in worlds.values()))
    return [replace(each, rollout=rollout) for rollout, each in zip(together, judged, strict=True)]
