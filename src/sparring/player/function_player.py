"""Plays rollouts with a user's function: concurrently, each with a deadline."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

from sparring.contracts.errors import error_text
from sparring.contracts.policies import Codec, Sample, SampleRequest, TokenPolicy
from sparring.contracts.rollouts import Ending, Rollout
from sparring.contracts.specs import Limits
from sparring.player.episode import Deadlines
from sparring.player.player import ConcurrentPlayer, Play, Played

RolloutFunction = Callable[[Play, TokenPolicy], Rollout | Awaitable[Rollout]]


class _PausingPolicy:
    """Wraps the policy that the user's function gets. The rollout's deadline is paused while
    `sample` waits for a lockstep batch."""

    def __init__(self, policy: TokenPolicy, deadlines: Deadlines) -> None:
        self.name = policy.name
        self._policy = policy
        self._deadlines = deadlines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    # From Python 3.12, `isinstance` with a protocol does not ask `__getattr__`.

    @property
    def codec(self) -> Codec:
        return self._policy.codec

    @property
    def samples_in_lockstep(self) -> bool:
        return self._policy.samples_in_lockstep

    def join(self) -> None:
        self._policy.join()

    def leave(self) -> None:
        self._policy.leave()

    async def sample(self, request: SampleRequest) -> Sample:
        if not self._policy.samples_in_lockstep:
            return await self._policy.sample(request)
        with self._deadlines.paused():
            return await self._policy.sample(request)


class FunctionPlayer(ConcurrentPlayer):
    """Plays rollouts with `async function(play, policy) -> Rollout` instead of an agent.

    The function samples with `await policy.sample(SampleRequest(...))` and returns a Rollout with
    the key of its play and the sampled rows. If it raises, the rollout ends with
    INFRASTRUCTURE_ERROR and is not judged.
    """

    _policy: TokenPolicy

    def __init__(self, function: RolloutFunction, policy: TokenPolicy, limits: Limits) -> None:
        super().__init__(policy, limits)
        self._function = function

    async def _roll_out(self, play: Play) -> Played:
        started = time.monotonic()
        deadlines = Deadlines()
        try:
            async with deadlines.within(self._limits.rollout_timeout) as deadline:
                result = self._function(play, _PausingPolicy(self._policy, deadlines))
                rollout = await result if inspect.isawaitable(result) else result
        except Exception as error:  # user code: an error ends only this rollout
            ending, detail = Ending.INFRASTRUCTURE_ERROR, error_text(error)
            if isinstance(error, TimeoutError) and deadline.expired():
                ending = Ending.ROLLOUT_DEADLINE
                detail = f"not finished within {self._limits.rollout_timeout:g} s"
            rollout = Rollout(play.key, play.case, ending, "", detail=detail)
        if not isinstance(rollout, Rollout) or rollout.key != play.key:
            detail = (
                f"the rollout function returned {type(rollout).__name__}; return a Rollout with "
                "the key of its play"
            )
            rollout = Rollout(play.key, play.case, Ending.INFRASTRUCTURE_ERROR, "", detail=detail)
        return Played(rollout, time.monotonic() - started)
