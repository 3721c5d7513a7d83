"""Runs the audit of measures that a spec describes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Any

from sparring.contracts.proof_specs import AuditSpec
from sparring.contracts.specs import FORMAT
from sparring.environments.environment import read_parts
from sparring.jobs.audit.auditor import Auditor, audit_null_players
from sparring.jobs.case_loader import RunCases
from sparring.jobs.environment_opening import opened
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.report import try_to_write_report
from sparring.measures import MeasureSet
from sparring.proofs.audit import ADVICE, audit
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json


def audit_environment(
    folder: RunFolder, spec: AuditSpec, cases: RunCases, heartbeat: Heartbeat
) -> str:
    """Judge null players, which need no model, write summary and report, return "completed"."""
    started = time.monotonic()
    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.play.unsandboxed
    ) as environment:
        parts = read_parts(environment, lambda: cases.suite(environment))
        measures = MeasureSet.of(
            parts.measures, environment.weights, seconds=spec.play.measure_seconds
        )
        auditor = Auditor(measures, parts.world)
        heartbeat.watch(lambda: auditor.judged)
        heartbeat.note("auditing", step=0)
        asyncio.run(audit_null_players(folder, auditor, parts.suite, spec.cases))
    findings = audit(auditor.observations)
    summary: dict[str, Any] = {
        "format": FORMAT,
        "kind": "audit",
        "run": folder.id,
        "environment": spec.environment,
        "measures": dict(measures.weights),
        "cases": spec.cases,
        "judgements": auditor.judged,
        "audit": [
            {**asdict(each), "fault": each.fault.value, "advice": ADVICE[each.fault]}
            for each in findings
        ],
        "left_out": auditor.left_out,
        "unsandboxed": spec.play.unsandboxed,
        "seconds": round(time.monotonic() - started, 1),
    }
    write_json(folder.summary, summary)
    try_to_write_report(folder)
    return "completed"
