"""Plays and judges the cases of one rank, in this process or in player processes, and logs them."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import PublishedWeights, VersionedPolicy
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.training import TrainSettings
from sparring.learning.drawing import Difficulty
from sparring.learning.engine import Launched
from sparring.learning.groups import Gaps, Group, StepRollouts
from sparring.learning.reporting import StepCounts
from sparring.learning.rows import RowRules, learning_rollout
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.player.worlds import end_world
from sparring.run_folder import RunFolder
from sparring.run_folder.orders import Orders
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutWriter, cut_from_step
from sparring.threads import LoopThread

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


_POLL_SECONDS = 0.02
_LOOK_SECONDS = 1.0
_LOST_SECONDS = 20.0  # a player loses its orders after this time without a heartbeat


class OrderedPlay:
    """Posts orders, each a file that requests up to `size` plays, and waits for their results.

    The results do not depend on which player plays an order, or how often it is played. Several
    threads may call `play` at the same time; players claim the orders of the earliest step first.
    """

    def __init__(self, orders: Orders, rank: int, size: int) -> None:
        self._orders = orders
        self._size = size
        self._name = f"rank{rank}-{secrets.token_hex(4)}"
        self._count = itertools.count()
        self._looking = threading.Lock()
        self._beats: dict[str, tuple[Any, float]] = {}
        self._is_closed = False
        self.reordered = 0
        orders.clear(f"rank{rank}")  # left by an earlier attempt

    def play(self, plays: Sequence[Play], weights: PublishedWeights) -> list[Played]:
        """Order `plays` with `weights`, and return the judged rollouts in the order of `plays`."""
        names = []
        for start in range(0, len(plays), self._size):
            keys = [(play.key, play.case.split.value) for play in plays[start : start + self._size]]
            body = {
                "format": 1,
                "weights": weights.to_dict(),
                "plays": [
                    [key.seed, key.step, key.case_id, key.index, split] for key, split in keys
                ],
            }
            names.append(f"{plays[start].key.step:08d}-{self._name}-{next(self._count):08d}")
            self._orders.post(names[-1], body)
        results = self._collect(names)
        return [played for name in names for played in results[name]]

    def close(self) -> None:
        """Make every call of `play` that waits for results raise InfrastructureError."""
        self._is_closed = True

    def _collect(self, names: Sequence[str]) -> dict[str, list[Played]]:
        results: dict[str, list[Played]] = {}
        looked_at = time.monotonic()
        while len(results) < len(names):
            if self._is_closed:
                raise InfrastructureError("the run ended before its players finished their orders")
            before = len(results)
            for name in names:
                if name not in results and (lines := self._orders.take(name)) is not None:
                    results[name] = [_played(line) for line in lines]
            if time.monotonic() - looked_at > _LOOK_SECONDS:
                looked_at = time.monotonic()
                with self._looking:
                    self._release_lost()
            if len(results) == before:
                time.sleep(_POLL_SECONDS)
        return results

    def _release_lost(self) -> None:
        """Reopen the orders of players whose heartbeat has stopped."""
        now = time.monotonic()
        for player, beat in self._orders.beats().items():
            last, since = self._beats.get(player, (None, now))
            if beat != last:
                self._beats[player] = (beat, now)
            elif now - since > _LOST_SECONDS:
                self.reordered += self._orders.release(player)
                del self._beats[player]


def _played(line: dict[str, Any]) -> Played:
    if "error" in line:
        raise InfrastructureError(f"a player could not play an order: {line['error']}")
    rollout, seconds = from_record(line["rollout"]), float(line["seconds"])
    return Played(rollout, seconds, bool(line.get("offers_tools")))


@dataclass(frozen=True, slots=True)
class TrainingCases:
    """The ids of the training cases, and a function that loads a case."""

    case_ids: Sequence[str]
    find_case: Callable[[str], Case]


class RolloutCollector:
    """Plays, judges, logs and counts the rollouts of one rank."""

    def __init__(
        self,
        folder: RunFolder,
        player: Plays,
        measures: MeasureSet,
        settings: TrainSettings,
        *,
        rules: RowRules,
        training: TrainingCases,
        validation: Sequence[Case] = (),
        launched: Launched | None = None,
        servers: VersionedPolicy | None = None,
        ordered: OrderedPlay | None = None,
        loop: LoopThread | None = None,
    ) -> None:
        """`servers` is the player's policy if it samples with published weights. With `ordered`,
        player processes play the rollouts; otherwise this process does."""
        self._folder = folder
        self._servers = servers
        self._ordered = ordered
        self.player = player
        self._measures = measures
        self._settings = settings
        self._rules = rules
        self.find_case = training.find_case
        self._launched = launched or Launched(0, 1)
        self._validation = list(validation)[self._launched.rank :: self._launched.world_size]
        self.has_validation = bool(validation)
        self.difficulty = Difficulty(training.case_ids)
        self.loop = loop or LoopThread()
        self._writer: RolloutWriter | None = None

    def resume_at(self, step: int, remembered: Mapping[str, Any] | None = None) -> None:
        """Open the rollout log, and remove the rollouts of this and later steps from it.

        Validation rollouts after `step` are removed too. `remembered` holds the difficulty
        statistics of the checkpoint.
        """
        rank = self._launched.rank
        cut_from_step(self._folder.rollouts(rank), step)
        cut_from_step(self._folder.validation_rollouts(rank), step + 1 if step else 0)
        self._writer = RolloutWriter(self._folder.rollouts(rank))
        if remembered is not None:
            self.difficulty.restore(remembered)

    @property
    def weights(self) -> PublishedWeights | None:
        """The weights that servers currently sample with; None without servers."""
        return None if self._servers is None else self._servers.weights

    def play(
        self, cases: Iterable[Case], size: int, step: int, weights: PublishedWeights | None
    ) -> list[Played]:
        """Play each case `size` times, all with these weights, and return the judged rollouts, case
        by case. Thread-safe."""
        seed = self._settings.seed
        plays = [
            Play(RolloutKey(seed, step, case.id, index), case)
            for case in cases
            for index in range(size)
        ]
        if self._servers is None or weights is None:
            return self.loop.run(play_and_judge(self.player, self._measures, plays))
        if self._ordered is not None:
            return self._ordered.play(plays, weights)
        with self._servers.assigned(weights, [play.key for play in plays]):
            return self.loop.run(play_and_judge(self.player, self._measures, plays))

    def grouped(self, played: Sequence[Played], version: int | None) -> list[Group]:
        """Return the training rollouts of each case as a group, with their rows. `version` is that
        of the weights; rollouts with tokens of other weights are not learned from."""
        learned = [learning_rollout(each.rollout, self._rules, version=version) for each in played]
        size = self._settings.num_generations
        return [
            Group(tuple(played[start : start + size]), tuple(learned[start : start + size]))
            for start in range(0, len(played), size)
        ]

    def log_step(
        self, played: StepRollouts, advantages: Sequence[float], gaps: Sequence[Gaps] = ()
    ) -> StepCounts:
        """Log the rollouts of a step with their advantages, and return the counts of the step."""
        logged = list(played.with_advantages(advantages, gaps))
        if self._writer is not None:
            for each in logged:
                self._writer.append(each.rollout, each.seconds)
        return StepCounts.merged([played.counts(), StepCounts.of(each.rollout for each in logged)])

    def validate(self, step: int) -> StepCounts:
        """Play and log this rank's share of the validation cases, once each; return the counts."""
        started = time.monotonic()
        played = self.play(self._validation, 1, step, self.weights)
        seconds = time.monotonic() - started
        with RolloutWriter(self._folder.validation_rollouts(self._launched.rank)) as writer:
            for each in played:
                writer.append(each.rollout, each.seconds)
        counts = StepCounts.of(each.rollout for each in played)
        with_tools = sum(each.offers_tools for each in played)
        return counts.plus(play_seconds=seconds / self._launched.world_size, with_tools=with_tools)

    def close(self) -> None:
        """Close the rollout log and the event loop. Rollouts still in play are abandoned."""
        if self._writer is not None:
            self._writer.close()
        if self._ordered is not None:
            self._ordered.close()
        self.loop.close()
