"""Checks, audits and proofs that a spec describes, in a worker's process."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Any

from sparring.contracts.proof_specs import AuditSpec, CheckSpec, ProveSpec
from sparring.contracts.specs import FORMAT
from sparring.environments.environment import read_parts
from sparring.measures import MeasureSet
from sparring.proofs.audit import ADVICE, audit
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.worker.auditing import Auditor, audit_null_players
from sparring.worker.cases_apart import CasesOfRun
from sparring.worker.holding import report_event
from sparring.worker.opening import opened
from sparring.worker.pulse import Pulse
from sparring.worker.reporting import write_report


def report(folder: RunFolder) -> None:
    """A report that cannot be drawn does not undo what it would report."""
    try:
        write_report(folder)
    except Exception as error:
        message = f"no report was written: {type(error).__name__}: {error}"
        report_event(folder, "warning", message=message)


def check_environment(folder: RunFolder, spec: CheckSpec, cases: CasesOfRun, pulse: Pulse) -> str:
    from sparring.worker.checking import Check

    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.settings.unsandboxed
    ) as environment:
        parts = read_parts(environment, lambda: cases.suite(environment))
        Check(folder, spec, environment, parts, pulse).run()
    report(folder)
    return "completed"


def prove_environment(folder: RunFolder, spec: ProveSpec, pulse: Pulse) -> str:
    from sparring.worker.proving import Proving

    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.play.unsandboxed
    ) as environment:
        Proving(folder, spec, environment, pulse).run()
    report(folder)
    return "completed"


def audit_environment(folder: RunFolder, spec: AuditSpec, cases: CasesOfRun, pulse: Pulse) -> str:
    """Null players only: no model is loaded."""
    started = time.monotonic()
    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.play.unsandboxed
    ) as environment:
        parts = read_parts(environment, lambda: cases.suite(environment))
        measures = MeasureSet.of(
            parts.measures, environment.weights, seconds=spec.play.measure_seconds
        )
        auditor = Auditor(measures, parts.world)
        pulse.watch(lambda: auditor.judged)
        pulse.note("auditing", step=0)
        asyncio.run(audit_null_players(folder, auditor, parts.suite, spec.cases))
    findings = audit(auditor.sights)
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
        "seconds": round(time.monotonic() - started, 1),
    }
    write_json(folder.summary, summary)
    report(folder)
    return "completed"
