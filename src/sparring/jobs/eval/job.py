"""Executes an evaluation: plays cases, judges and logs every rollout, writes a summary.

An interrupted evaluation resumes where it stopped (jobs/logged_play.py).
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any

from sparring.contracts.cases import Split, digest_of
from sparring.contracts.errors import InfrastructureError, RunChanged
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Rollout
from sparring.contracts.specs import EvalSpec
from sparring.contracts.summaries import EvalSummary
from sparring.environments.task import Task
from sparring.jobs.logged_play import LoggedPlay, plays_of
from sparring.jobs.run_job import Attempt, Job
from sparring.jobs.worker import PlayClock, Progress, ProgressHeartbeat, report_event
from sparring.player import Play
from sparring.policies.endpoint_policy import EndpointPolicy
from sparring.policies.loading import load_policy
from sparring.policies.pretrained import origin_of
from sparring.proofs.eval_summary import EvalTally
from sparring.run_folder.checkpoint_list import candidate_of
from sparring.run_folder.contents import write_summary
from sparring.run_folder.files import append_line, read_lines
from sparring.run_folder.held_out_ledger import record_look
from sparring.threads import run_in_own_loop


class EvalJob(Job[EvalSummary]):
    """One evaluation. A worker process loads the model itself, and fails if no rollout could be
    scored; a Python program passes its `policy`."""

    def __init__(
        self,
        attempt: Attempt,
        spec: EvalSpec,
        task: Task,
        policy: Policy | None = None,
    ) -> None:
        task.suite.require(spec.split)  # before the model is loaded, which may take minutes
        self._attempt = attempt
        self._folder = attempt.folder
        self._spec = spec
        self._task = task
        self._policy = policy or load_policy(
            spec.policy, task.agent.model, task.family, kv_cache_memory=spec.play.kv_cache_memory
        )
        self._tally = EvalTally()
        cases = task.suite.size(spec.split)
        self._cases = min(cases, spec.cases or cases)
        self._progress = Progress(total=self._cases * spec.play.num_generations)
        self._logged = LoggedPlay(
            self._folder.rollouts(), self._plan, task=task, policy=self._policy, play=spec.play
        )

    def run(self) -> EvalSummary:
        """Play the missing rollouts and return the summary."""
        if not self._attempt.owns_process:
            return run_in_own_loop(self._play())
        if self._folder.stop_request.exists():  # requested while the model was loading
            raise KeyboardInterrupt
        self._attempt.heartbeat.watch(lambda: self._progress.rollouts + self._logged.tokens_drawn())
        self._attempt.heartbeat.note("playing", step=0)
        summary = asyncio.run(_until_stopped(self._play()))
        if summary.rollouts and summary.unscored == summary.rollouts:
            write_summary(self._folder, summary)
            raise _nothing_scored(summary)
        return summary

    def _plan(self) -> Iterator[Play]:
        cases = self._task.suite.cases(self._spec.split, self._spec.cases)
        return plays_of(cases, self._spec.play.num_generations, self._spec.play.seed)

    async def _play(self) -> EvalSummary:
        self._check_inputs()
        for rollout in self._logged.earlier():
            self._count(rollout)
        clock = PlayClock(min(self._spec.play.rollouts_at_once, max(1, self._progress.total)))
        beat = ProgressHeartbeat(self._folder, self._progress, self._logged.tokens_drawn, clock)
        beat.start_clock()
        beat.earlier_tokens = self._progress.sampled_tokens
        started = time.monotonic()
        async with beat.running():
            if isinstance(self._policy, EndpointPolicy) and not self._progress.rollouts:
                await self._policy.ask_once()
            await self._logged.run(lambda played: self._count(played.rollout))
        return self._sum_up(time.monotonic() - started, self._logged.hung_tools())

    # ------------------------------------------------------------------ counting

    def _check_inputs(self) -> None:
        """Record the inputs of this attempt. Raise RunChanged if an earlier attempt used another
        suite or chat template, because one summary must not mix their rollouts."""
        codec = getattr(self._policy, "codec", None)
        inputs = {"suite": self._task.suite.digest, "template": getattr(codec, "digest", None)}
        for event in read_lines(self._folder.events):
            if event.get("event") != "inputs":
                continue
            for name, digest in inputs.items():
                if event.get(name) != digest:
                    raise RunChanged(
                        f"run {self._folder.id} was started on another {name} (digest "
                        f"{str(event.get(name))[:12]}, now {str(digest)[:12]}); start a new run"
                    )
        looked_at = digest_of(self._task.suite.cases(self._spec.split))
        count = len(self._task.suite)
        more: dict[str, Any] = {"cases": count, "looked_at": looked_at, "model": self._policy.name}
        more |= {} if codec is None else origin_of(codec.tokenizer)
        report_event(self._folder, "inputs", **inputs, **more)

    def _count(self, rollout: Rollout) -> None:
        self._tally.add(rollout)
        self._progress.count(rollout)

    def _sum_up(self, seconds: float, hung: list[str]) -> EvalSummary:
        summary = EvalSummary(
            run=self._folder.id,
            environment=self._spec.environment,
            policy=self._policy.name,
            split=self._spec.split.value,
            cases=self._cases,
            rollouts_per_case=self._spec.play.num_generations,
            temperature=self._spec.play.temperature,
            seconds=round(seconds, 2),
            hung_tools=tuple(hung),
            unsandboxed=self._spec.play.unsandboxed,
            **dict(self._tally.figures()),
        )
        if hung:
            calls = ", ".join(f"{count} × {tool}" for tool, count in Counter(hung).items())
            message = f"tool calls that never returned, each abandoned at its deadline: {calls}"
            report_event(self._folder, "warning", message=message)
        attempt = self._folder.attempts()
        append_line(self._folder.metrics, {"attempt": attempt, "step": 0, **summary.as_json()})
        if candidate := self._candidate():
            digest = digest_of(self._task.suite.cases(self._spec.split))
            record_look(self._folder, digest, f"{candidate}#{self._spec.play.seed}")
        return summary

    def _candidate(self) -> str:
        """Return the name of a trained model that plays held-out cases, for the ledger; "" for
        others."""
        spec, own = self._spec, self._task.agent.model
        if spec.split is not Split.HELD_OUT:
            return ""
        named = own if isinstance(own, str) and spec.policy.kind != "endpoint" else None
        return candidate_of(spec.policy.model or named)


async def _until_stopped(work: Coroutine[Any, Any, EvalSummary]) -> EvalSummary:
    """Run the evaluation. SIGTERM and Ctrl-C cancel it; a resumed run keeps logged rollouts."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    return await task


def _nothing_scored(summary: EvalSummary) -> InfrastructureError:
    """Return the error of a run of which every rollout is unscored."""
    measures = sorted(summary.measures.values(), key=lambda each: -each.broken)
    reasons = [each.reason for measure in measures for each in measure.reasons_for_failing]
    broken = reasons if measures and measures[0].broken else []
    causes = [cause.reason for cause in summary.causes]
    why = (broken or causes or reasons or ["no measure has a weight"])[0]
    return InfrastructureError(f"none of {summary.rollouts} rollouts could be scored: {why}")
