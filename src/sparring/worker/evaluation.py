"""A run of kind eval: play cases, judge them, log every rollout, sum up.

It resumes where it stopped. With in-process weights the log is written in the order of the
plan, and a block that a crash cut short is played again from its start: the same batches
give the same tokens, so what was already logged is equal and only the rest is added. With
a server, every rollout is logged as it ends and only the missing ones are played.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agents import Agent

from sparring.contracts.cases import Split
from sparring.contracts.errors import RunChanged
from sparring.contracts.policies import Policy, is_played_in_waves
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.specs import PlaySettings
from sparring.measures import MeasureSet
from sparring.player import Play, Played, Player
from sparring.player.player import ContextFactory
from sparring.player.worlds import end_world
from sparring.proofs.eval_summary import EvalTally
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, read_lines, write_json
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import Entry, RolloutLog, RolloutWriter, id_digest
from sparring.suites import Suite
from sparring.worker.holding import report_event

_JUDGED_AHEAD = 256


@dataclass(frozen=True, slots=True)
class EvalWork:
    """Everything an evaluation needs, already loaded."""

    agent: Agent[Any]
    suite: Suite
    measures: MeasureSet
    policy: Policy
    play: PlaySettings
    split: Split = Split.VALIDATION
    cases: int | None = None
    context: ContextFactory | None = None

    def total(self) -> int:
        cases = self.suite.size(self.split)
        return min(cases, self.cases or cases) * self.play.num_generations

    def plan(self) -> Iterator[Play]:
        """Every rollout of the evaluation, in order; siblings stand together."""
        for case in self.suite.cases(self.split, self.cases):
            for index in range(self.play.num_generations):
                yield Play(RolloutKey(self.play.seed, 0, case.id, index), case)


@dataclass(slots=True)
class Progress:
    """How far an evaluation has come."""

    total: int
    rollouts: int = 0
    sampled_tokens: int = 0
    passed: int = 0


OnProgress = Callable[[Progress], None]


class Evaluation:
    """One attempt at one evaluation."""

    def __init__(
        self, folder: RunFolder, work: EvalWork, on_progress: OnProgress | None = None
    ) -> None:
        self._folder = folder
        self._work = work
        self._tally = EvalTally()
        self._progress = Progress(total=work.total())
        self._on_progress = on_progress or (lambda _: None)
        self._kept_tokens = 0

    def done(self) -> int:
        """A number that grows while there is progress."""
        return self._progress.rollouts + self._tokens_drawn()

    async def run(self) -> dict[str, Any]:
        """Play what is missing and sum up. The caller holds the run."""
        self._refuse_other_inputs()
        self._count_earlier_rollouts()
        player = Player(
            self._work.agent,
            self._work.policy,
            limits=self._work.play.limits(),
            temperature=self._work.play.temperature,
            context=self._work.context,
        )
        mine = asyncio.current_task()
        beat = asyncio.create_task(self._beat(mine))
        started = time.monotonic()
        try:
            with RolloutWriter(self._folder.rollouts()) as writer:
                async with aclosing(self._judged(player)) as judged:
                    async for played in judged:
                        writer.append(played.rollout, played.seconds)
                        self._count(played.rollout)
        finally:
            beat.cancel()
            self._write_heartbeat()
        return self._sum_up(time.monotonic() - started, player.hung_threads())

    # ------------------------------------------------------------------ playing

    async def _judged(self, player: Player) -> AsyncGenerator[Played]:
        """Play what is missing; judge beside playing; hand on in the order of playing, each as
        soon as it is judged, so that a crash finds as little as possible unlogged."""
        judging: asyncio.Queue[asyncio.Task[Played] | None] = asyncio.Queue(_JUDGED_AHEAD)
        playing = asyncio.create_task(self._play_into(judging, player))
        try:
            while (task := await judging.get()) is not None:
                yield await task
            await playing
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)

    async def _play_into(
        self, judging: asyncio.Queue[asyncio.Task[Played] | None], player: Player
    ) -> None:
        plays, skip = self._missing()
        try:
            async with aclosing(player.play(plays)) as stream:
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
        judged = await self._work.measures.judge(played.rollout)
        await end_world(judged.world)
        return Played(judged, played.seconds)

    def _missing(self) -> tuple[Iterator[Play], int]:
        """What is left to play, and how many of its first rollouts are logged already."""
        log = RolloutLog(self._folder.rollouts())
        if not self._in_waves:
            done = {entry.id_digest for entry in log.entries() if self._stays(entry)}
            return (play for play in self._work.plan() if id_digest(play.key.id) not in done), 0
        for entry, play in zip(log.entries(), self._work.plan(), strict=False):
            if entry.id_digest != id_digest(play.key.id):
                raise RunChanged(
                    f"run {self._folder.id} has logged other rollouts than its plan says; "
                    "start a new run"
                )
        blocks, skip = divmod(len(log), self._work.play.in_flight)
        return islice(self._work.plan(), blocks * self._work.play.in_flight, None), skip

    # ------------------------------------------------------------------ counting

    def _refuse_other_inputs(self) -> None:
        """Rollouts of two suites, or of two chat formats, must never end up in one table."""
        codec = getattr(self._work.policy, "codec", None)
        inputs = {"suite": self._work.suite.digest, "template": getattr(codec, "digest", None)}
        for event in read_lines(self._folder.events):
            if event.get("event") != "inputs":
                continue
            for name, digest in inputs.items():
                if event.get(name) != digest:
                    raise RunChanged(
                        f"run {self._folder.id} was started on another {name} (digest "
                        f"{str(event.get(name))[:12]}, now {str(digest)[:12]}); start a new run"
                    )
        report_event(self._folder, "inputs", **inputs, cases=len(self._work.suite))

    def _count_earlier_rollouts(self) -> None:
        """All that stays; a rollout that broke and will be played again is not counted."""
        log = RolloutLog(self._folder.rollouts())
        for number, entry in enumerate(log.entries()):
            if self._stays(entry):
                self._count(from_record(next(log.records(number, number + 1))))
        self._kept_tokens = self._progress.sampled_tokens

    def _stays(self, entry: Entry) -> bool:
        """Machinery may work by now. In waves, what broke is part of an order that repeats."""
        return self._in_waves or entry.ending is not Ending.MACHINERY

    @property
    def _in_waves(self) -> bool:
        return is_played_in_waves(self._work.policy)

    def _tokens_drawn(self) -> int:
        return int(getattr(self._work.policy, "tokens_drawn", 0))

    def _count(self, rollout: Rollout) -> None:
        self._tally.add(rollout)
        self._progress.rollouts += 1
        self._progress.sampled_tokens += rollout.tokens.sampled
        self._progress.passed += rollout.reward == 1.0
        self._on_progress(self._progress)

    async def _beat(self, work: asyncio.Task[Any] | None) -> None:
        while True:
            self._write_heartbeat()
            if self._folder.stop_request.exists() and work is not None:
                work.cancel()  # what was logged stays, and the run can resume
            await asyncio.sleep(0.5)

    def _write_heartbeat(self) -> None:
        progress = self._progress
        beat = {
            "format": 1,
            "pid": os.getpid(),
            "time": time.time(),
            "rollouts": progress.rollouts,
            "total": progress.total,
            "sampled_tokens": max(
                progress.sampled_tokens, self._kept_tokens + self._tokens_drawn()
            ),
            "passed": progress.passed,
        }
        write_json(self._folder.heartbeat, beat, durable=False)

    def _sum_up(self, seconds: float, hung: list[str]) -> dict[str, Any]:
        summary = self._tally.summary(
            run=self._folder.id,
            policy=self._work.policy.name,
            split=self._work.split.value,
            cases=self._progress.total // self._work.play.num_generations,
            rollouts_per_case=self._work.play.num_generations,
            temperature=self._work.play.temperature,
            seconds=round(seconds, 2),
            hung_tools=hung,
            unsandboxed=self._work.play.unsandboxed,
        )
        if hung:
            told = ", ".join(f"{count} × {tool}" for tool, count in Counter(hung).items())
            message = f"calls of tools that never came back, each left at its deadline: {told}"
            report_event(self._folder, "warning", message=message)
        attempt = self._folder.attempts()
        append_line(self._folder.metrics, {"attempt": attempt, "step": 0, **summary})
        write_json(self._folder.summary, summary)
        return summary
