"""Rollouts by a function of the user's, played like ours: at the same time, under a deadline."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from itertools import islice

from sparring.contracts.limits import Limits
from sparring.contracts.policies import TokenPolicy
from sparring.contracts.rollouts import Ending, Rollout
from sparring.player.player import Play, Played

RolloutFunction = Callable[[Play, TokenPolicy], Rollout | Awaitable[Rollout]]


class FunctionPlayer:
    """Plays with `async function(play, policy) -> Rollout` instead of an agent.

    The function samples with `await policy.sample(SampleRequest(...))` and returns a rollout
    with the row that it sampled. What it raises leaves that rollout unscored.
    """

    def __init__(self, function: RolloutFunction, policy: TokenPolicy, limits: Limits) -> None:
        self._function = function
        self._policy = policy
        self._limits = limits

    async def play(self, plays: Iterable[Play]) -> AsyncGenerator[Played]:
        """In blocks of `in_flight`; yields in the order of `plays`."""
        waiting = iter(plays)
        while block := list(islice(waiting, self._limits.in_flight)):
            for _ in block:
                self._policy.join()
            tasks = [asyncio.create_task(self._play(play)) for play in block]
            for task in tasks:
                task.add_done_callback(lambda _: self._policy.leave())
            try:
                for task in tasks:
                    yield await task
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, play: Play) -> Played:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._limits.rollout_seconds):
                made = self._function(play, self._policy)
                rollout = await made if inspect.isawaitable(made) else made
        except TimeoutError:
            told = f"no end within {self._limits.rollout_seconds:g} s"
            rollout = Rollout(play.key, play.case, Ending.ROLLOUT_DEADLINE, "", detail=told)
        except Exception as error:  # the user's code: one broken rollout ends no other
            told = f"{type(error).__name__}: {error}"
            rollout = Rollout(play.key, play.case, Ending.MACHINERY, "", detail=told)
        if not isinstance(rollout, Rollout) or rollout.key != play.key:
            told = (
                f"the rollout function returned {type(rollout).__name__}, not this play's rollout"
            )
            rollout = Rollout(play.key, play.case, Ending.MACHINERY, "", detail=told)
        return Played(rollout, time.monotonic() - started)
