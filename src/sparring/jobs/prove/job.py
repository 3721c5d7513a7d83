"""Executes a proof: plays the base and the trained model on the same cases, and compares them.

The proof uses the checkpoint that its spec names; by default, the training run's best when the
proof starts. Both models sample with the same seeds, so that equal weights give equal rollouts.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sparring.contracts.cases import Case, digest_of
from sparring.contracts.errors import InfrastructureError, InvalidInput, RunChanged, SparringError
from sparring.contracts.kinds import ProveSpec
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Rollout
from sparring.contracts.specs import FORMAT
from sparring.contracts.summaries import AuditFinding, ProveSummary
from sparring.environments import load_environment
from sparring.environments.task import Task
from sparring.jobs.audit.auditor import Auditor, audit_null_players
from sparring.jobs.logged_play import LoggedPlay, plays_of
from sparring.jobs.run_job import Attempt, Job
from sparring.jobs.worker import PlayClock, Progress, ProgressHeartbeat, report_event
from sparring.policies.loading import load_policy
from sparring.proofs.audit import Observation, audit
from sparring.proofs.check_verdict import OF_THE_MODEL
from sparring.proofs.proof import PlayedSides, prove
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import Checkpoint, best_of, list_checkpoints
from sparring.run_folder.files import read_lines
from sparring.run_folder.held_out_ledger import record_look, runs_that_looked
from sparring.run_folder.sharded_log import read_rollouts
from sparring.threads import run_in_own_loop

BASE, TRAINED = "base", "trained"
_AUDITED_CASES = 4


@dataclass(frozen=True, slots=True)
class _Suite:
    """The cases of one task that both models play."""

    name: str
    task: Task
    cases: Sequence[Case]


class ProveJob(Job[ProveSummary]):
    """One proof, from its checkpoint to its summary."""

    def __init__(self, attempt: Attempt, spec: ProveSpec, task: Task) -> None:
        self._folder = attempt.folder
        self._heartbeat = attempt.heartbeat
        self._spec = spec
        self._task = task
        self._checkpoint = self._choose_checkpoint()
        self._audit: tuple[AuditFinding, ...] | None = None
        self._left_out: list[str] = []

    def run(self) -> ProveSummary:
        """Play both models, compare them, and return the summary."""
        started = time.monotonic()
        suites = [self._suite("", self._task)]
        if self._spec.also:
            seconds = self._spec.play.measure_timeout
            also = Task.of_environment(load_environment(self._spec.also), measure_timeout=seconds)
            suites.append(self._suite("also-", also))
        self._refuse_other_inputs(suites)
        digest = digest_of(self._task.suite.cases(self._spec.split))  # also unplayed ones
        run_in_own_loop(self._play_and_audit(suites, digest))
        played = [
            PlayedSides(
                self._rollouts_of(suite.name + BASE), self._rollouts_of(suite.name + TRAINED)
            )
            for suite in suites
        ]
        _refuse_unscored_side(played[0])
        chances = self._chances(digest)
        proof = prove(played[0], chances=chances, also=played[1] if len(played) > 1 else None)
        spec = self._spec
        return ProveSummary(
            format=FORMAT,
            kind="prove",
            run=self._folder.id,
            environment=spec.environment,
            training=spec.run,
            checkpoint=str(self._checkpoint.path),
            model=spec.base.model,
            split=spec.split.value,
            cases=len(suites[0].cases),
            rollouts_per_case=spec.rollouts,
            temperature=spec.play.temperature,
            **dict(proof),
            also_environment=spec.also_environment,
            picked_from=chances,
            cases_digest=digest,
            proofs_on_these_cases=len(runs_that_looked(self._folder, digest)),
            unsandboxed=spec.play.unsandboxed,
            audit=self._audit,
            left_out=tuple(self._left_out),
            seconds=round(time.monotonic() - started, 1),
        )

    # ------------------------------------------------------------------ inputs

    def _suite(self, name: str, task: Task) -> _Suite:
        return _Suite(name, task, list(task.suite.cases(self._spec.split, self._spec.cases)))

    def _choose_checkpoint(self) -> Checkpoint:
        """Return the checkpoint that the spec names; by default the best on validation, or the last
        if none was validated. A resumed proof keeps its checkpoint."""
        checkpoints = list_checkpoints(
            RunFolder(self._folder.path.parent / self._spec.run).checkpoints
        )
        if not checkpoints:
            raise InvalidInput(
                f"run {self._spec.run} has no readable checkpoint, so nothing can be proved; "
                "train again"
            )
        events = [
            line for line in read_lines(self._folder.events) if line.get("event") == "proving"
        ]
        wanted = events[-1]["checkpoint"] if events else self._spec.checkpoint
        if not wanted:
            return best_of(checkpoints) or checkpoints[-1]
        for each in checkpoints:
            if each.path.name == wanted:
                return each
        names = ", ".join(each.path.name for each in checkpoints)
        raise InvalidInput(f"run {self._spec.run} has no checkpoint {wanted}; it has {names}")

    def _refuse_other_inputs(self, suites: Sequence[_Suite]) -> None:
        digest = digest_of([case for suite in suites for case in suite.cases])
        for event in read_lines(self._folder.events):
            if event.get("event") == "proving" and event.get("cases") != digest:
                raise RunChanged(
                    f"proof {self._folder.id} was started on other cases; start a new proof"
                )
        report_event(self._folder, "proving", checkpoint=self._checkpoint.path.name, cases=digest)

    # ------------------------------------------------------------------ playing

    async def _play_and_audit(self, suites: Sequence[_Suite], digest: str) -> None:
        """Play both models, then audit the measures, because a proof depends on their quality.
        Playing and auditing share one event loop, because a client that a measure keeps is bound to
        its loop."""
        await self._play(suites, digest)
        task = self._task
        auditor = Auditor(task.measures, task.context, task.answers_shown)
        self._heartbeat.watch(lambda: auditor.judged)
        self._heartbeat.note("auditing")
        try:
            await audit_null_players(self._folder, auditor, task.suite, _AUDITED_CASES)
        except SparringError as error:  # such as too few training cases; the proof stays valid
            report_event(self._folder, "warning", message=f"no audit: {error}")
            return
        for side in (BASE, TRAINED):
            for rollout in self._rollouts_of(side):
                auditor.observations += [
                    Observation(judgement, f"{side}/{rollout.id}", rollout.case.id)
                    for judgement in rollout.judgements
                ]
        findings = audit(auditor.observations)
        self._audit = tuple(each for each in findings if each.fault not in OF_THE_MODEL)
        self._left_out = auditor.left_out

    async def _play(self, suites: Sequence[_Suite], digest: str) -> None:
        """Play one model after the other, because two may not fit into memory. The look at the
        cases is recorded before the trained model plays, so that a stopped proof counts too."""
        total = 2 * self._spec.rollouts * sum(len(suite.cases) for suite in suites)
        progress = Progress(total)
        current: list[LoggedPlay] = []  # of one policy, so the last one counts all its tokens
        tokens_before = 0

        def drawn() -> int:
            return tokens_before + sum(each.tokens_drawn() for each in current[-1:])

        clock = PlayClock(min(self._spec.play.rollouts_at_once, total))
        beat = ProgressHeartbeat(self._folder, progress, drawn, clock)
        self._heartbeat.watch(lambda: progress.rollouts + drawn())
        trained = self._spec.policy.model_copy(update={"model": str(self._checkpoint.path)})
        async with beat.running():
            for side, spec in ((BASE, self._spec.base), (TRAINED, trained)):
                self._heartbeat.note(f"loading the {side} model")
                policy = await asyncio.to_thread(
                    load_policy,
                    spec,
                    self._task.agent.model,
                    self._task.family,
                    kv_cache_memory=self._spec.play.kv_cache_memory,
                )
                if side == TRAINED:
                    self._count_look(digest)
                self._heartbeat.note(f"playing the {side} model", step=progress.rollouts)
                for suite in suites:
                    logged = self._logged(side, policy, suite)
                    current.append(logged)
                    for rollout in logged.earlier():
                        progress.count(rollout)
                    beat.start_clock()
                    await logged.run(lambda played: progress.count(played.rollout))
                tokens_before = drawn()
                current.clear()
                del policy, logged
                gc.collect()  # the model may be part of reference cycles

    def _logged(self, side: str, policy: Policy, suite: _Suite) -> LoggedPlay:
        return LoggedPlay(
            self._folder.rollouts_of(suite.name + side),
            lambda: plays_of(suite.cases, self._spec.rollouts, self._spec.play.seed),
            task=suite.task,
            policy=policy,
            play=self._spec.play,
        )

    def _rollouts_of(self, player: str) -> list[Rollout]:
        return read_rollouts([self._folder.rollouts_of(player)])

    # ------------------------------------------------------------------ results

    def _chances(self, digest: str) -> int:
        """Return the number of candidates that the interval is corrected for: the largest of
        `picked_from`, the number of candidates in the ledger and, on validation cases, the number
        of validated checkpoints."""
        candidates = max(self._spec.picked_from, self._count_look(digest))
        if self._spec.split != "validation":
            return candidates
        trained = RunFolder(self._folder.path.parent / self._spec.run)
        validated = {
            row["step"] for row in read_lines(trained.metrics) if "validation/reward" in row
        }
        return max(candidates, len(validated - {0}))

    def _count_look(self, digest: str) -> int:
        """Record this proof in the ledger and return the number of candidates on these cases.
        Another sample of the same weights counts as another candidate."""
        spec = self._spec
        draw = f"{spec.play.seed}/{spec.cases or 'all'}x{spec.rollouts}"
        return record_look(self._folder, digest, f"{spec.run}/{self._checkpoint.path.name}#{draw}")


def _refuse_unscored_side(played: PlayedSides) -> None:
    for side, rollouts in ((BASE, played.base), (TRAINED, played.trained)):
        if rollouts and all(each.reward is None for each in rollouts):
            raise InfrastructureError(
                f"no rollout of the {side} model could be scored: {rollouts[0].unscored_because}"
            )
