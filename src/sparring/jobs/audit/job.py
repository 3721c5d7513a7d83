"""Audits an environment's measures, without a model."""

from __future__ import annotations

import time
from dataclasses import asdict

from sparring.contracts.kinds import AuditSpec
from sparring.contracts.specs import FORMAT
from sparring.contracts.summaries import AdvisedFinding, AuditSummary
from sparring.environments.task import Task
from sparring.jobs.audit.auditor import Auditor, audit_null_players
from sparring.jobs.run_job import Attempt, Job
from sparring.proofs.audit import ADVICE, audit
from sparring.threads import run_in_own_loop


class AuditJob(Job[AuditSummary]):
    """Has the measures judge null players, which need no model."""

    def __init__(self, attempt: Attempt, spec: AuditSpec, task: Task) -> None:
        self._attempt = attempt
        self._spec = spec
        self._task = task

    def run(self) -> AuditSummary:
        """Judge the null players' answers and return the summary."""
        started = time.monotonic()
        folder, heartbeat = self._attempt.folder, self._attempt.heartbeat
        auditor = Auditor(self._task.measures, self._task.context, self._task.answers_shown)
        heartbeat.watch(lambda: auditor.judged)
        heartbeat.note("auditing", step=0)
        run_in_own_loop(audit_null_players(folder, auditor, self._task.suite, self._spec.cases))
        findings = audit(auditor.observations)
        return AuditSummary(
            format=FORMAT,
            kind="audit",
            run=folder.id,
            environment=self._spec.environment,
            measures=dict(self._task.measures.weights),
            cases=self._spec.cases,
            judgements=auditor.judged,
            audit=tuple(
                AdvisedFinding(**asdict(each), advice=ADVICE[each.fault]) for each in findings
            ),
            left_out=tuple(auditor.left_out),
            unsandboxed=self._spec.play.unsandboxed,
            seconds=round(time.monotonic() - started, 1),
        )
