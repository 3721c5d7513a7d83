"""Runs of kind audit: test measures for faults, without a model."""

from __future__ import annotations

from sparring.contracts.proof_specs import AuditSpec
from sparring.jobs.attempt import Attempt
from sparring.jobs.case_loader import RunCases


def run(attempt: Attempt) -> str:
    """Run an audit of measures. Another process reads the cases."""
    spec = AuditSpec.model_validate(attempt.spec)
    cases = RunCases(attempt.folder, spec, is_unsandboxed=spec.play.unsandboxed)
    from sparring.jobs.audit.job import audit_environment

    return audit_environment(attempt.folder, spec, cases, attempt.heartbeat)
