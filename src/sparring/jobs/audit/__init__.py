"""Runs of kind audit: search measures for faults, without a model."""

from __future__ import annotations

from sparring.contracts.proof_specs import AuditSpec
from sparring.jobs.case_loader import RunCases
from sparring.jobs.job import Job


def run(job: Job) -> str:
    """Run an audit of measures."""
    spec = AuditSpec.model_validate(job.spec)
    cases = RunCases(job.folder, spec, is_unsandboxed=spec.play.unsandboxed)
    from sparring.jobs.audit.job import audit_environment

    return audit_environment(job.folder, spec, cases, job.heartbeat)
