"""Executes a check: tests whether an environment can be learned, before training on it.

The model to be trained plays some training cases, and other models behind endpoints play a few.
The measures are audited, and a few training steps are run and discarded. The result is a verdict
(proofs/check_verdict.py) and an estimate of the cost (proofs/estimates.py).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import GuardStop, InfrastructureError, NotEnoughMemory, SparringError
from sparring.contracts.kinds import CheckSpec
from sparring.contracts.rollouts import Rollout
from sparring.contracts.specs import COMMAND, FORMAT
from sparring.contracts.summaries import CheckSummary, LiveShare, Note
from sparring.environments.task import Task
from sparring.jobs.audit.auditor import Auditor, audit_null_players
from sparring.jobs.check.cost import SplitSizes, training_cost
from sparring.jobs.check.play import CheckPlay
from sparring.jobs.run_job import Attempt, Job
from sparring.jobs.train.warm_start import tried_demonstrations
from sparring.jobs.worker import report_event
from sparring.learning.dry_run import DryRun
from sparring.learning.engine import Launched
from sparring.learning.work import Built, TrainWork, build, load_work
from sparring.player.external_agent import ExternalAgent
from sparring.player.trainability import has_tools
from sparring.policies.families import Family
from sparring.policies.pretrained import origin_of
from sparring.policies.round_trip import difference_from, round_trip_problems
from sparring.proofs.audit import audit
from sparring.proofs.check_verdict import OF_THE_MODEL, Facts, judge
from sparring.proofs.eval_summary import EvalTally
from sparring.proofs.learnability import bands, judge_measures, live_shares, outcomes_of
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import write_summary
from sparring.threads import run_in_own_loop

_MANY_CONFLICTS = 0.1  # of the cases; a few are noise, from which training still learns
_NOT_HERE = object()  # unlike None, no value of a setting


@dataclass(frozen=True, slots=True)
class _Trial:
    """The training that the check has built, and the play of all models."""

    built: Built
    played: CheckPlay


class CheckJob(Job[CheckSummary]):
    """One check, from its task to its summary."""

    def __init__(self, attempt: Attempt, spec: CheckSpec, task: Task) -> None:
        self._folder = attempt.folder
        self._heartbeat = attempt.heartbeat
        self._spec = spec
        self._task = task
        self._failures: list[str] = []
        self._notes: list[Note] = []
        self._agent_model = ""
        self._call_format = ""
        self._shown = ""
        self._dry = DryRun(spec.dry_steps, on_doing=self._note_dry_step)
        self._trial: _Trial | None = None  # once something is played
        self._is_stopped = False

    def run(self) -> CheckSummary:
        """Run the check and return its summary. A check that is stopped while it plays writes a
        summary of the rollouts so far, and raises."""
        started = time.monotonic()
        model = self._task.agent.model
        self._agent_model = model if isinstance(model, str) else ""
        obstacles = self._task.training_obstacles(self._spec.settings)
        self._check_suite()
        auditor = Auditor(self._task.measures, self._task.context, self._task.answers_shown)
        try:
            self._try_out(auditor, can_train=not obstacles)
        except (KeyboardInterrupt, asyncio.CancelledError):
            self._is_stopped = True
            if self._trial is not None and self._trial.played.learner:
                summary = self._conclude(self._facts(auditor, obstacles), started)
                write_summary(self._folder, summary)
            raise
        return self._conclude(self._facts(auditor, obstacles), started)

    def _facts(self, auditor: Auditor, obstacles: Sequence[str]) -> Facts:
        settings, played = self._spec.settings, self._trial.played if self._trial else None
        learner = list(played.learner) if played else []
        return Facts(
            environment=self._spec.environment or "ENV",
            run=self._folder.id,
            planned=played.planned if played else 0,
            minutes=self._spec.minutes,
            is_stopped=self._is_stopped,
            measures=judge_measures(
                learner,
                group_size=settings.num_generations,
                masks_truncated=settings.mask_truncated_completions,
            ),
            obstacles=obstacles,
            failures=self._failures,
            rollouts=learner,
            findings=[
                each for each in audit(auditor.observations) if each.fault not in OF_THE_MODEL
            ],
            rewarded=auditor.rewarded(learner),
            live=self._live(learner),
            others=[each for each in played.models if not each.is_learner] if played else (),
            completion_length=settings.max_completion_length,
            demonstrations=settings.warm_start.source if settings.warm_start else "",
            shown=self._shown,
            has_tools=_has_tools(self._task) or auditor.has_world_tools,
            call_format=self._call_format,
            masks_truncated=settings.mask_truncated_completions,
        )

    def _try_out(self, auditor: Auditor, *, can_train: bool) -> None:
        """Audit the measures, play cases, and run training steps, which are skipped after a
        failure. If the agent cannot be trained, only audit; with too few cases, do nothing."""
        if self._failures:
            return
        if not can_train:
            run_in_own_loop(self._audit(auditor))
            return
        with tempfile.TemporaryDirectory() as scratch:
            work = self._load()
            built = self._build(RunFolder(Path(scratch) / "dry"), work)
            self._try_demonstrations(work, built)
            played = CheckPlay(self._folder, self._spec, self._task, built)
            self._trial = _Trial(built, played)
            # All judging shares one event loop: measures may keep clients that are bound to it.
            built.collector.loop.run(self._audit_and_play(auditor, played))
            if not self._failures:
                self._try_steps(built, work, played)

    def _conclude(self, facts: Facts, started: float) -> CheckSummary:
        checked = judge(facts)
        played = self._trial.played if self._trial else None
        spec = self._spec
        tally = EvalTally()
        for rollout in facts.rollouts:
            tally.add(rollout)
        return CheckSummary(
            format=FORMAT,
            kind="check",
            run=self._folder.id,
            environment=spec.environment,
            model=spec.policy.model or self._agent_model,
            group_size=spec.settings.num_generations,
            rollouts_per_case=spec.rollouts,
            unsandboxed=spec.settings.unsandboxed,
            set_by_command=_set_by_command(spec),
            verdict=checked.verdict,
            why=checked.why,
            notes=(*checked.notes, *self._notes),
            audit=tuple(facts.findings),
            measures=tuple(facts.measures),
            live=tuple(facts.live),
            cases=tuple(bands(facts.rollouts)),
            figures=tally.figures(),
            models=tuple(played.models) if played else (),
            estimate=training_cost(
                spec, SplitSizes.of(self._task.suite), played, self._dry, facts.live
            )
            if played
            else None,
            seconds=round(time.monotonic() - started, 1),
        )

    async def _audit_and_play(self, auditor: Auditor, played: CheckPlay) -> None:
        await self._audit(auditor)
        await played.run(auditor, self._heartbeat)

    async def _audit(self, auditor: Auditor) -> None:
        self._heartbeat.watch(lambda: auditor.judged)
        self._heartbeat.note("auditing")
        try:
            await audit_null_players(self._folder, auditor, self._task.suite)
        except InfrastructureError as error:
            self._failures.append(str(error))
        self._notes += [Note("audit", each) for each in auditor.left_out]

    # ------------------------------------------------------------------ before playing

    def _check_suite(self) -> None:
        conflicts, count = self._task.conflicts, len(self._task.suite)
        if conflicts.cases > _MANY_CONFLICTS * count:
            self._failures.append(str(conflicts))
        elif conflicts.cases:
            self._notes.append(Note("expected outcomes", str(conflicts)))
        for split in (Split.TRAINING, Split.HELD_OUT):
            try:
                self._task.suite.require(split)
            except SparringError as error:
                if split is Split.TRAINING:
                    self._failures.append(str(error))
                else:
                    self._notes.append(Note("no proof yet", str(error)))

    def _load(self) -> TrainWork:
        self._heartbeat.note("loading")
        settings = self._spec.settings.model_copy(
            update={
                "validation_cases": 0,
                "max_steps": max(2, self._spec.dry_steps + 1),
                "logging_steps": 1,  # steps are counted when they are logged
                "replacement_groups": 0,  # dry steps measure the update; play is measured apart
                "sampling": None,  # the check samples with the weights in this process
                "players": 0,
                "max_staleness": 0,
                "guards": self._spec.settings.guards.only_not_finite(),
            }
        )
        task = self._task
        work = load_work(task, settings, self._spec.policy, world_size=1)
        learner = work.learner
        inputs = {"suite": task.suite.digest, "cases": len(task.suite), "model": learner.name}
        report_event(self._folder, "inputs", **inputs, **origin_of(learner.tokenizer))
        codec = learner.codec()
        self._call_format = _call_format(learner.family)
        uses_tools = _has_tools(task) or task.context is not None
        self._failures += [
            f"the chat format of {learner.family.name} does not survive a round trip: "
            f"{problem.message}"
            for problem in round_trip_problems(codec)
            if uses_tools or not problem.concerns_tools
        ]
        if difference := difference_from(learner.own_template, codec):
            message = (
                f"training renders conversations differently from {learner.name}'s own template: "
                f"{difference}"
            )
            advice = "no action is needed: the exported model includes the training template"
            self._notes.append(Note("template", message, advice))
        self._failures += work.trial_problems()
        return work

    def _try_demonstrations(self, work: TrainWork, built: Built) -> None:
        """Play the demonstrations. If none passes, the check fails, as the training would."""
        warm = self._spec.settings.warm_start
        if warm is None:
            return
        self._heartbeat.note("playing demonstrations")
        run = built.collector.loop.run
        tried = tried_demonstrations(warm.source, self._folder, work, run)
        message = f"demonstrations of {warm.source}: {tried}"
        if not tried.passed:
            self._failures.append(message)
            return
        self._shown = f"{tried.passed} of {tried.total} demonstrations pass"
        if tried.passed < tried.total:
            advice = f"set max_completion_length={tried.needed}" if tried.needed else ""
            self._notes.append(Note("demonstrations", message, advice))

    def _build(self, scratch: RunFolder, work: TrainWork) -> Built:
        scratch.path.mkdir()
        built = build(scratch, work, Launched.here(), self._dry.hooks())
        self._heartbeat.note("measuring memory")
        try:
            built.engine.prepare(built.prompt_tokens)
        except NotEnoughMemory as error:
            self._failures.append(str(error))
        return built

    # ------------------------------------------------------------------ trying steps

    def _try_steps(self, built: Built, work: TrainWork, played: CheckPlay) -> None:
        """Run a few training steps and discard their result. Skip them if all rewards are equal and
        no demonstration has passed, because then there is nothing to learn."""
        can_differ = len({each.reward for each in played.learner}) > 1 or self._shown
        if not self._spec.dry_steps or not can_differ:
            return
        import torch

        longest = work.settings.max_completion_length if torch.cuda.is_available() else None
        try:
            built.collector.resume_at(0)
            self._dry.run(built, longest=longest)
        except GuardStop as error:
            self._failures.append(f"a training step failed: {error}")
        except (SparringError, RuntimeError, ValueError) as error:
            self._failures.append(f"a training step failed: {type(error).__name__}: {error}")
        finally:
            built.collector.close()

    def _note_dry_step(self, doing: str, step: int) -> None:
        """Report an activity of a dry step, and the time left for the others."""
        done, steps = len(self._dry.done), self._spec.dry_steps
        self._heartbeat.note(f"dry step {done + 1}: {doing}", step)
        beat = self._trial.played.beat if self._trial else None
        if beat is not None and doing == "playing":
            if done:
                beat.left = (steps - done) * self._dry.done[-1].whole
            beat.write()

    # ------------------------------------------------------------------ afterwards

    def _live(self, learner: Sequence[Rollout]) -> list[LiveShare]:
        if self._trial is None or not learner:
            return []
        settings = self._spec.settings
        return live_shares(
            outcomes_of(learner, masks_truncated=settings.mask_truncated_completions),
            group_size=settings.num_generations,
            groups_per_step=self._trial.built.plan.cases_per_step
            * self._spec.processes
            * self._spec.nodes,
        )


def _call_format(family: Family) -> str:
    """Return how tool calls must be written, for formats with an opening and a closing tag."""
    before, after = (str(getattr(family.tool_calls, each, "")) for each in ("open", "close"))
    return f"the family {family.name} reads calls as {before}…{after}" if before else ""


def _has_tools(task: Task) -> bool:
    """Return whether the agent has tools. For an agent outside the SDK, this is known only after it
    has played."""
    if isinstance(task.agent, ExternalAgent):
        return task.agent.has_tools
    return has_tools(task.agent, task.context)


def _set_by_command(spec: CheckSpec) -> dict[str, Any]:
    """Return the settings from the command line, for the training command to repeat."""
    values = {
        **spec.settings.model_dump(mode="json"),
        **spec.supervision.model_dump(mode="json"),
        "config": spec.config,
        "model": spec.policy.model,
        "family": spec.policy.family,
        "processes": spec.processes,
        "nodes": spec.nodes,
    }
    named = {name: _value_at(values, name) for name, by in spec.sources.items() if by == COMMAND}
    return {name: value for name, value in named.items() if value is not _NOT_HERE}


def _value_at(values: Mapping[str, Any], name: str) -> Any:
    """Return the value of a setting by its dotted name; `_NOT_HERE` if there is none."""
    first, _, rest = name.partition(".")
    value = values.get(first, _NOT_HERE)
    if rest:
        value = _value_at(value, rest) if isinstance(value, Mapping) else _NOT_HERE
    return value
