"""Executes an evaluation: plays cases, judges and logs every rollout, writes a summary.

An interrupted evaluation resumes where it stopped (jobs/logged_play.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sparring.contracts.cases import Split, digest_of
from sparring.contracts.errors import RunChanged
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.specs import PlaySettings
from sparring.jobs.logged_play import LoggedPlay
from sparring.jobs.progress import Progress, ProgressHeartbeat
from sparring.jobs.run_lock import report_event
from sparring.measures import MeasureSet
from sparring.player import Play
from sparring.player.external_agent import PlayedAgent
from sparring.player.player import ContextFactory
from sparring.player.users import UserFunction
from sparring.proofs.eval_summary import EvalTally
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, read_lines, write_json
from sparring.run_folder.held_out_ledger import record_look
from sparring.suites import Suite


@dataclass(frozen=True, slots=True)
class EvalWork:
    """The loaded inputs of an evaluation. A non-empty `candidate` names a trained model, whose
    evaluation is recorded in the ledger of held-out cases."""

    agent: PlayedAgent
    suite: Suite
    measures: MeasureSet
    policy: Policy
    play: PlaySettings
    split: Split = Split.VALIDATION
    cases: int | None = None
    context: ContextFactory | None = None
    user: UserFunction | None = None
    candidate: str = ""

    def total(self) -> int:
        """Return the number of planned rollouts."""
        cases = self.suite.size(self.split)
        return min(cases, self.cases or cases) * self.play.num_generations

    def plan(self) -> Iterator[Play]:
        """Yield every planned rollout; the rollouts of one case are adjacent."""
        for case in self.suite.cases(self.split, self.cases):
            for index in range(self.play.num_generations):
                yield Play(RolloutKey(self.play.seed, 0, case.id, index), case)


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
        self._logged = LoggedPlay(
            folder.rollouts(),
            work.plan,
            agent=work.agent,
            policy=work.policy,
            measures=work.measures,
            play=work.play,
            context=work.context,
            user=work.user,
        )

    def done(self) -> int:
        """Return played rollouts plus sampled tokens, as a progress counter for the heartbeat."""
        return self._progress.rollouts + self._logged.tokens_drawn()

    async def run(self) -> dict[str, Any]:
        """Play the missing rollouts, write the summary and return it. The caller holds the lock."""
        self._check_inputs()
        for rollout in self._logged.earlier():
            self._count(rollout)
        beat = ProgressHeartbeat(self._folder, self._progress, self._logged.tokens_drawn)
        beat.earlier_tokens = self._progress.sampled_tokens
        started = time.monotonic()
        async with beat.running():
            await self._logged.run(lambda played: self._count(played.rollout))
        return self._sum_up(time.monotonic() - started, self._logged.hung_tools())

    # ------------------------------------------------------------------ counting

    def _check_inputs(self) -> None:
        """Record the inputs of this attempt. Raise RunChanged if an earlier attempt used another
        suite or chat template, because one summary must not mix their rollouts."""
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
        looked_at = digest_of(self._work.suite.cases(self._work.split))
        count = len(self._work.suite)
        more = {"cases": count, "looked_at": looked_at, "model": self._work.policy.name}
        report_event(self._folder, "inputs", **inputs, **more)

    def _count(self, rollout: Rollout) -> None:
        self._tally.add(rollout)
        self._progress.count(rollout)
        self._on_progress(self._progress)

    def _sum_up(self, seconds: float, hung: list[str]) -> dict[str, Any]:
        summary = self._tally.summary(
            run=self._folder.id,
            environment=self._folder.read_spec().get("environment", ""),
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
            calls = ", ".join(f"{count} × {tool}" for tool, count in Counter(hung).items())
            message = f"tool calls that never returned, each abandoned at its deadline: {calls}"
            report_event(self._folder, "warning", message=message)
        attempt = self._folder.attempts()
        append_line(self._folder.metrics, {"attempt": attempt, "step": 0, **summary})
        if self._work.candidate:
            digest = digest_of(self._work.suite.cases(self._work.split))
            record_look(self._folder, digest, f"{self._work.candidate}#{self._work.play.seed}")
        write_json(self._folder.summary, summary)
        return summary
