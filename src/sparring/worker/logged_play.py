"""Playing a plan of rollouts into a log, so that it goes on where it stopped.

With in-process weights the log is written in the order of the plan, and a block that a crash
cut short is played again from its start: the same batches give the same tokens, so what was
already logged is equal and only the rest is added. With a server, every rollout is logged as
it ends and only the missing ones are played.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Any

from agents import Agent

from sparring.contracts.errors import RunChanged
from sparring.contracts.policies import Policy, is_played_in_waves
from sparring.contracts.rollouts import Ending, Rollout
from sparring.contracts.specs import PlaySettings
from sparring.measures import MeasureSet
from sparring.player import Play, Played, Player
from sparring.player.player import ContextFactory
from sparring.player.worlds import end_world
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import Entry, RolloutLog, RolloutWriter, id_digest

_JUDGED_AHEAD = 256


class LoggedPlay:
    """One agent with one policy, on one plan, in one log. `look_again` is given each rollout that
    is judged, while its world is still there."""

    def __init__(
        self,
        place: Path,
        plan: Callable[[], Iterator[Play]],
        *,
        agent: Agent[Any],
        policy: Policy,
        measures: MeasureSet,
        play: PlaySettings,
        context: ContextFactory | None = None,
        look_again: Callable[[Rollout], Awaitable[None]] | None = None,
    ) -> None:
        self._place = place
        self._plan = plan
        self._policy = policy
        self._measures = measures
        self._look_again = look_again
        self._block = play.in_flight
        self._player = Player(
            agent,
            policy,
            limits=play.limits(),
            temperature=play.temperature,
            context=context,
        )

    async def run(self, note: Callable[[Played], None]) -> None:
        """Play what is missing; each rollout is noted once it is in the log."""
        with RolloutWriter(self._place) as writer:
            async with aclosing(self._judged()) as judged:
                async for played in judged:
                    writer.append(played.rollout, played.seconds)
                    note(played)

    def earlier(self) -> Iterator[Rollout]:
        """What is logged and stays; a rollout that broke and will be played again does not."""
        log = RolloutLog(self._place)
        for number, entry in enumerate(log.entries()):
            if self._stays(entry):
                yield from_record(next(log.records(number, number + 1)))

    def hung_tools(self) -> list[str]:
        return self._player.hung_threads()

    def tokens_drawn(self) -> int:
        return int(getattr(self._policy, "tokens_drawn", 0))

    # ------------------------------------------------------------------ inside

    async def _judged(self) -> AsyncGenerator[Played]:
        """Play what is missing; judge beside playing; hand on in the order of playing, each as
        soon as it is judged, so that a crash finds as little as possible unlogged."""
        judging: asyncio.Queue[asyncio.Task[Played] | None] = asyncio.Queue(_JUDGED_AHEAD)
        playing = asyncio.create_task(self._play_into(judging))
        try:
            while (task := await judging.get()) is not None:
                yield await task
            await playing
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)

    async def _play_into(self, judging: asyncio.Queue[asyncio.Task[Played] | None]) -> None:
        plays, skip = self._missing()
        try:
            async with aclosing(self._player.play(plays)) as stream:
                async for played in stream:
                    if skip:
                        skip -= 1
                        await end_world(played.rollout.world)
                    else:
                        await judging.put(asyncio.create_task(self._judge(played)))
        except asyncio.CancelledError:
            raise  # nobody listens any more
        except BaseException:
            await judging.put(None)  # the listener finds the failure when it looks
            raise
        await judging.put(None)

    async def _judge(self, played: Played) -> Played:
        judged = await self._measures.judge(played.rollout)
        if self._look_again is not None:
            await self._look_again(judged)
        await end_world(judged.world)
        return Played(judged, played.seconds)

    def _missing(self) -> tuple[Iterator[Play], int]:
        """What is left to play, and how many of its first rollouts are logged already."""
        log = RolloutLog(self._place)
        if not self._in_waves:
            done = {entry.id_digest for entry in log.entries() if self._stays(entry)}
            return (play for play in self._plan() if id_digest(play.key.id) not in done), 0
        for entry, play in zip(log.entries(), self._plan(), strict=False):
            if entry.id_digest != id_digest(play.key.id):
                raise RunChanged(
                    f"{self._place} has logged other rollouts than its plan says; start a new run"
                )
        blocks, skip = divmod(len(log), self._block)
        return islice(self._plan(), blocks * self._block, None), skip

    def _stays(self, entry: Entry) -> bool:
        """Machinery may work by now. In waves, what broke is part of an order that repeats."""
        return self._in_waves or entry.ending is not Ending.MACHINERY

    @property
    def _in_waves(self) -> bool:
        return is_played_in_waves(self._policy)
