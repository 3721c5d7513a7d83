"""A run of kind check: whether an environment can be learned from, before time is spent on it.

The model to be trained plays some training cases, other models behind endpoints play a few; the
measures are audited; a few steps are really done and thrown away. What came of it is a verdict
(proofs/check_verdict.py) and an estimate (proofs/estimates.py).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import (
    GuardStop,
    MachineryFailure,
    NotEnoughMemory,
    SparringError,
)
from sparring.contracts.proof_specs import CheckSpec, ProveSpec
from sparring.contracts.rollouts import Rollout
from sparring.contracts.specs import FORMAT
from sparring.engine.building import Built, TrainWork, build
from sparring.engine.configuration import check as check_settings
from sparring.engine.configuration import plan_of
from sparring.engine.dry_run import DryRun, memory_used
from sparring.engine.loading import load
from sparring.engine.ranks import Launched
from sparring.environments.environment import Environment, Parts
from sparring.measures import MeasureSet
from sparring.player.trainability import obstacles, refuse_several_rows
from sparring.policies.round_trip import difference_from, round_trip_problems
from sparring.proofs.audit import audit
from sparring.proofs.check_verdict import OF_THE_MODEL, Facts, Note, judge
from sparring.proofs.estimates import Measured, Planned, estimate
from sparring.proofs.eval_summary import EvalTally
from sparring.proofs.learnability import LiveShare, bands, live_shares, outcomes_of
from sparring.proofs.measure_verdicts import judge_measures
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.worker.auditing import Auditor, audit_null_players
from sparring.worker.check_play import CheckPlay
from sparring.worker.fitting import fit_passes
from sparring.worker.holding import report_event
from sparring.worker.pulse import Pulse
from sparring.worker.warm_start import tried_demonstrations

_PROOF_ROLLOUTS = ProveSpec.model_fields["rollouts"].default


class Check:
    """One check, from its parts to its summary."""

    def __init__(
        self,
        folder: RunFolder,
        spec: CheckSpec,
        environment: Environment,
        parts: Parts,
        pulse: Pulse,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._environment = environment
        self._parts = parts
        self._pulse = pulse
        self._failures: list[str] = []
        self._notes: list[Note] = []
        self._agent_model = ""
        self._shown = ""
        self._training_cases = self._validation_cases = self._held_out_cases = 0
        self._dry = DryRun(spec.dry_steps, on_doing=pulse.note)

    def run(self) -> dict[str, Any]:
        started = time.monotonic()
        parts = self._parts
        measures = MeasureSet.of(
            parts.measures,
            self._environment.weights,
            seconds=self._spec.settings.measure_seconds,
        )
        self._agent_model = parts.agent.model if isinstance(parts.agent.model, str) else ""
        self._training_cases = parts.suite.size(Split.TRAINING)
        self._validation_cases = parts.suite.size(Split.VALIDATION)
        self._held_out_cases = parts.suite.size(Split.HELD_OUT)
        in_the_way = list(dict.fromkeys(_obstacles(parts)))
        self._look_at_splits(parts)
        auditor = Auditor(measures, parts.world)
        built = played = None
        with tempfile.TemporaryDirectory() as scratch:
            if not in_the_way and not self._failures:
                work = self._load(parts, measures)
                self._try_demonstrations(work)
                built = self._build(RunFolder(Path(scratch) / "dry"), work)
                played = CheckPlay(self._folder, self._spec, parts, measures, built)
                # One loop for all that is judged: clients that a measure keeps belong to a loop.
                built.practice.loop.run(self._audit_and_play(auditor, parts, played))
                if not self._failures:
                    self._try_steps(built, work, played)
            elif not self._failures:
                asyncio.run(self._audit(auditor, parts))
        findings = [each for each in audit(auditor.sights) if each.fault not in OF_THE_MODEL]
        learner = played.learner if played else []
        live = self._live(learner, built)
        settings = self._spec.settings
        verdicts = judge_measures(
            learner,
            group_size=settings.num_generations,
            masks_truncated=settings.mask_truncated_completions,
        )
        checked = judge(
            Facts(
                environment=self._spec.environment or "ENV",
                run=self._folder.id,
                planned=played.planned if played else 0,
                minutes=self._spec.minutes,
                measures=verdicts,
                obstacles=in_the_way,
                failures=self._failures,
                rollouts=learner,
                findings=findings,
                rewarded=frozenset(name for name, weight in measures.weights.items() if weight > 0),
                live=live,
                others=[each for each in played.models if not each.is_learner] if played else (),
                completion_length=settings.max_completion_length,
                demonstrations=settings.warm_start.source if settings.warm_start else "",
                shown=self._shown,
                has_tools=bool(parts.agent.tools) or auditor.has_world_tools,
                masks_truncated=settings.mask_truncated_completions,
            )
        )
        return self._sum_up(
            verdict=checked.verdict.value,
            why=checked.why,
            notes=[asdict(each) for each in (*checked.notes, *self._notes)],
            audit=[{**asdict(each), "fault": each.fault.value} for each in findings],
            measures=[{**asdict(each), "movement": each.movement.value} for each in verdicts],
            live=[asdict(each) for each in live],
            cases=[asdict(each) for each in bands(learner)],
            figures=_figures(learner),
            models=[asdict(each) for each in played.models] if played else [],
            estimate=self._estimate(live, played) if played else None,
            seconds=round(time.monotonic() - started, 1),
        )

    async def _audit_and_play(self, auditor: Auditor, parts: Parts, played: CheckPlay) -> None:
        await self._audit(auditor, parts)
        await played.run(auditor, self._pulse)

    async def _audit(self, auditor: Auditor, parts: Parts) -> None:
        self._pulse.watch(lambda: auditor.judged)
        self._pulse.note("auditing")
        try:
            await audit_null_players(self._folder, auditor, parts.suite)
        except MachineryFailure as error:
            self._failures.append(str(error))
        self._notes += [Note("audit", each) for each in auditor.left_out]

    # ------------------------------------------------------------------ before playing

    def _look_at_splits(self, parts: Parts) -> None:
        for split in (Split.TRAINING, Split.HELD_OUT):
            try:
                parts.suite.require(split)
            except SparringError as error:
                if split is Split.TRAINING:
                    self._failures.append(str(error))
                else:
                    self._notes.append(Note("no proof yet", str(error)))
        report_event(self._folder, "inputs", suite=parts.suite.digest, cases=len(parts.suite))

    def _load(self, parts: Parts, measures: MeasureSet) -> TrainWork:
        self._pulse.note("loading")
        settings = self._spec.settings.model_copy(
            update={"validation_cases": 0, "max_steps": max(2, self._spec.dry_steps + 1)}
        )
        check_settings(settings, parts.suite.size(Split.TRAINING), 1)
        loaded = load(
            self._spec.policy,
            settings,
            agent_model=parts.agent.model,
            declared=self._environment.family,
        )
        codec = loaded.codec()
        self._failures += [
            f"the chat format of {loaded.family.name} does not survive: {problem}"
            for problem in round_trip_problems(codec)
            if parts.agent.tools or parts.world is not None or "tool" not in problem
        ]
        if told := difference_from(loaded.own_template, codec):
            message = f"training renders conversations otherwise than {loaded.name} itself: {told}"
            advice = "what is exported carries the training template, so that nothing changes later"
            self._notes.append(Note("template", message, advice))
        return TrainWork(
            agent=parts.agent,
            suite=parts.suite,
            measures=measures,
            settings=settings,
            loaded=loaded,
            context=parts.world,
        )

    def _try_demonstrations(self, work: TrainWork) -> None:
        """Demonstrations that do not fit would end the training right after its start."""
        warm = self._spec.settings.warm_start
        if warm is None:
            return
        self._pulse.note("playing demonstrations")
        tried = tried_demonstrations(warm.source, self._folder, work)
        told = f"demonstrations of {warm.source}: {tried}"
        if not tried.passed:
            self._failures.append(told)
            return
        self._shown = f"{tried.passed} of {tried.total} demonstrations pass"
        if tried.passed < tried.total:
            advice = f"set max_completion_length={tried.needed}" if tried.needed else ""
            self._notes.append(Note("demonstrations", told, advice))

    def _build(self, scratch: RunFolder, work: TrainWork) -> Built:
        scratch.path.mkdir()
        built = build(scratch, work, Launched.here(), self._dry.hooks())
        self._pulse.note("measuring memory")
        try:
            fit_passes(scratch, work, built, Launched.here())
        except NotEnoughMemory as error:
            self._failures.append(str(error))
        return built

    # ------------------------------------------------------------------ trying steps

    def _try_steps(self, built: Built, work: TrainWork, played: CheckPlay) -> None:
        """Not where no reward differs: nothing would be learned from, and the verdict is clear. But
        after demonstrations they may."""
        may_differ = len({each.reward for each in played.learner}) > 1 or self._shown
        if not self._spec.dry_steps or not may_differ:
            return
        import torch

        longest = work.settings.max_completion_length if torch.cuda.is_available() else None
        try:
            refuse_several_rows(work.agent)
            built.practice.resume_at(0)
            self._dry.run(built, longest=longest)
        except GuardStop:
            pass  # as many steps as it takes for a guard to say what the verdict says
        except (SparringError, RuntimeError, ValueError) as error:
            self._failures.append(f"a step of training fails: {type(error).__name__}: {error}")
        finally:
            built.practice.close()

    # ------------------------------------------------------------------ afterwards

    def _live(self, learner: Sequence[Rollout], built: Built | None) -> list[LiveShare]:
        if built is None or not learner:
            return []
        settings = self._spec.settings
        return live_shares(
            outcomes_of(learner, masks_truncated=settings.mask_truncated_completions),
            group_size=settings.num_generations,
            groups_per_step=built.plan.cases_per_step * self._world_size,
        )

    @property
    def _world_size(self) -> int:
        return self._spec.processes * self._spec.nodes

    def _estimate(self, live: Sequence[LiveShare], played: CheckPlay) -> dict[str, Any] | None:
        learner = played.learner
        if played.measured is None or not live or not self._dry.done:
            return None
        import torch

        settings = self._spec.settings
        step = self._dry.done[min(len(self._dry.done), self._spec.dry_steps) - 1]
        clock, cpu = (
            Measured(each.batches, each.group, update)
            for each, update in zip(played.measured, (step.update, step.update_cpu), strict=True)
        )
        plan = plan_of(settings, self._training_cases, self._world_size)
        wanted = settings.validation_cases
        spares = settings.replacement_groups
        planned = Planned(
            steps=plan.steps,
            groups_per_step=plan.cases_per_step,
            rollouts_per_group=plan.rollouts_per_case,
            replacement_groups=plan.cases_per_step if spares is None else spares,
            world_size=self._world_size,
            validations=plan.steps // plan.checkpoint_steps + 2,
            validation_cases=min(64 if wanted is None else wanted, self._validation_cases),
            tokens_per_rollout=sum(each.tokens.sampled for each in learner) / len(learner),
            live=live[0],
            proof_rollouts=2 * _PROOF_ROLLOUTS * self._held_out_cases,
            cores=torch.get_num_threads(),
        )
        found = estimate(clock, cpu, planned, price_per_hour=self._spec.price_per_hour)
        what, used = memory_used()
        return {
            **asdict(found),
            "steps": plan.steps,
            "plan": str(plan),
            "memory": used,
            "memory_of": what,
            "parity": self._dry.parity,
            "basis": f"{len(clock.batches)} batches played and {len(self._dry.done)} steps "
            "thrown away, on this machine",
        }

    def _sum_up(self, **found: Any) -> dict[str, Any]:
        spec = self._spec
        summary = {
            "format": FORMAT,
            "kind": "check",
            "run": self._folder.id,
            "environment": spec.environment,
            "model": spec.policy.model or self._agent_model,
            "group_size": spec.settings.num_generations,
            "rollouts_per_case": spec.rollouts,
            "unsandboxed": spec.settings.unsandboxed,
            **found,
        }
        write_json(self._folder.summary, summary)
        return summary


def _obstacles(parts: Parts) -> Iterator[str]:
    yield from obstacles(parts.agent)
    try:
        refuse_several_rows(parts.agent)
    except SparringError as error:
        yield str(error)


def _figures(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    tally = EvalTally()
    for rollout in rollouts:
        tally.add(rollout)
    return tally.summary()
