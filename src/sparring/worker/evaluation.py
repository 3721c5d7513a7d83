"""A run of kind eval: play cases, judge them, log every rollout, sum up.

It goes on where it stopped (worker/logged_play.py).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agents import Agent

from sparring.contracts.cases import Split
from sparring.contracts.errors import RunChanged
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.specs import PlaySettings
from sparring.measures import MeasureSet
from sparring.player import Play
from sparring.player.player import ContextFactory
from sparring.proofs.eval_summary import EvalTally
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, read_lines, write_json
from sparring.suites import Suite
from sparring.worker.holding import report_event
from sparring.worker.logged_play import LoggedPlay


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
        self._logged = LoggedPlay(
            folder.rollouts(),
            work.plan,
            agent=work.agent,
            policy=work.policy,
            measures=work.measures,
            play=work.play,
            context=work.context,
        )

    def done(self) -> int:
        """A number that grows while there is progress."""
        return self._progress.rollouts + self._logged.tokens_drawn()

    async def run(self) -> dict[str, Any]:
        """Play what is missing and sum up. The caller holds the run."""
        self._refuse_other_inputs()
        for rollout in self._logged.earlier():
            self._count(rollout)
        self._kept_tokens = self._progress.sampled_tokens
        beat = asyncio.create_task(self._beat(asyncio.current_task()))
        started = time.monotonic()
        try:
            await self._logged.run(lambda played: self._count(played.rollout))
        finally:
            beat.cancel()
            self._write_heartbeat()
        return self._sum_up(time.monotonic() - started, self._logged.hung_tools())

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
                progress.sampled_tokens, self._kept_tokens + self._logged.tokens_drawn()
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
