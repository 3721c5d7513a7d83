"""Plays planned rollouts, judges and logs them, and resumes where an earlier attempt stopped.

With in-process weights, the log follows the order of the plan. A batch that a crash interrupted is
played again from its start: the same batch samples the same tokens, so only its missing rollouts
are appended. With a server, rollouts are logged in the order in which they end, and only missing
ones are played.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.errors import RunChanged
from sparring.contracts.policies import Policy, is_played_in_lockstep
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.specs import PlaySettings
from sparring.environments.task import Task
from sparring.player import Play, Played, Player
from sparring.player.worlds import end_world
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog, RolloutWriter
from sparring.run_folder.shard_files import Entry, id_digest

_MAX_JUDGING = 256
_PLAYED_AGAIN = (Ending.INFRASTRUCTURE_ERROR, Ending.NO_MODEL_CALL)


def plays_of(cases: Iterable[Case], rollouts: int, seed: int) -> Iterator[Play]:
    """Yield the plays of each case; those of one case are adjacent."""
    for case in cases:
        for index in range(rollouts):
            yield Play(RolloutKey(seed, 0, case.id, index), case)


class LoggedPlay:
    """Plays the rollouts of a plan with one task and one policy, and logs them at `place`.
    `judge_again` is called with each judged rollout before its world ends. `player` replaces the
    task's own."""

    def __init__(
        self,
        place: Path,
        plan: Callable[[], Iterator[Play]],
        *,
        task: Task,
        policy: Policy,
        play: PlaySettings,
        judge_again: Callable[[Rollout], Awaitable[None]] | None = None,
        player: Player | None = None,
    ) -> None:
        self._place = place
        self._plan = plan
        self._policy = policy
        self._measures = task.measures
        self._look_again = judge_again
        self._block = play.rollouts_at_once
        self._judging: set[asyncio.Task[Played]] = set()
        self._worlds: dict[RolloutKey, Any] = {}  # of the rollouts that are being judged
        self._ending: set[asyncio.Task[None]] = set()
        self._player = player or task.player(policy, play)

    async def run(self, note: Callable[[Played], None]) -> None:
        """Play the missing rollouts, and call `note` with each after it is logged."""
        with RolloutWriter(self._place) as writer:
            async with aclosing(self._judged()) as judged:
                async for played in judged:
                    writer.append(played.rollout, played.seconds)
                    note(played)

    def earlier(self) -> Iterator[Rollout]:
        """Yield the logged rollouts that will not be played again."""
        log = RolloutLog(self._place)
        for number, entry in enumerate(log.entries()):
            if self._is_final(entry):
                yield from_record(next(log.records(number, number + 1)))

    def hung_tools(self) -> list[str]:
        """Return the tool name of each call that exceeded its deadline and still runs."""
        return self._player.hung_threads()

    def tokens_drawn(self) -> int:
        """Return the number of tokens that the policy has sampled so far."""
        return int(getattr(self._policy, "tokens_drawn", 0))

    # ------------------------------------------------------------------ inside

    async def _judged(self) -> AsyncGenerator[Played]:
        """Play the missing rollouts, judge them concurrently, and yield them in the order in which
        they were played, each as soon as it is judged, so that a crash loses few of them."""
        judging: asyncio.Queue[asyncio.Task[Played] | None] = asyncio.Queue(_MAX_JUDGING)
        playing = asyncio.create_task(self._play_into(judging))
        try:
            while (task := await judging.get()) is not None:
                yield await task
            await playing
        finally:
            unfinished: list[asyncio.Task[Any]] = [playing, *self._judging]
            for each in unfinished:
                each.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
            worlds = (end_world(world) for world in self._worlds.values())
            await asyncio.gather(*self._ending, *worlds)

    async def _play_into(self, judging: asyncio.Queue[asyncio.Task[Played] | None]) -> None:
        try:
            plays, skip = self._missing()
            async with aclosing(self._player.play(plays)) as stream:
                async for played in stream:
                    if skip:
                        skip -= 1
                        await end_world(played.rollout.world)
                    else:
                        self._worlds[played.rollout.key] = played.rollout.world
                        task = asyncio.create_task(self._judge(played))
                        self._judging.add(task)
                        task.add_done_callback(self._judging.discard)
                        await judging.put(task)
        except asyncio.CancelledError:
            raise  # nothing reads the queue any more
        except BaseException:
            await judging.put(None)  # `_judged` raises the failure when it awaits this task
            raise
        await judging.put(None)

    async def _judge(self, played: Played) -> Played:
        judged = await self._measures.judge(played.rollout)
        if self._look_again is not None:
            await self._look_again(judged)
        ending = asyncio.create_task(end_world(self._worlds.pop(judged.key)))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)
        return replace(played, rollout=judged)

    def _missing(self) -> tuple[Iterator[Play], int]:
        """Return the plays to run, and how many of the first ones are logged already."""
        log = RolloutLog(self._place)
        if not self._in_lockstep:
            done = {entry.id_digest for entry in log.entries() if self._is_final(entry)}
            return (play for play in self._plan() if id_digest(play.key.id) not in done), 0
        for entry, play in zip(log.entries(), self._plan(), strict=False):
            if entry.id_digest != id_digest(play.key.id):
                raise RunChanged(
                    f"the rollouts logged in {self._place} differ from the plan; start a new run"
                )
        blocks, skip = divmod(len(log), self._block)
        return islice(self._plan(), blocks * self._block, None), skip

    def _is_final(self, entry: Entry) -> bool:
        """Return whether a logged rollout is kept. Rollouts that broke are played again, because
        the cause may be gone; in lockstep batches they are kept, because the order must repeat."""
        return self._in_lockstep or entry.ending not in _PLAYED_AGAIN

    @property
    def _in_lockstep(self) -> bool:
        return is_played_in_lockstep(self._policy)
