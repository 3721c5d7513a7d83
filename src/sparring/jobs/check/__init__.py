"""Runs of kind check: test whether an environment can be learned, before training on it."""

from __future__ import annotations

from sparring.contracts.proof_specs import CheckSpec
from sparring.jobs.attempt import Attempt
from sparring.jobs.case_loader import RunCases


def run(attempt: Attempt) -> str:
    """Run a check. Another process reads the cases while this process imports torch."""
    spec = CheckSpec.model_validate(attempt.spec)
    cases = RunCases(attempt.folder, spec, is_unsandboxed=spec.settings.unsandboxed)
    from sparring.jobs.check.job import check_environment

    return check_environment(attempt.folder, spec, cases, attempt.heartbeat)
