"""Runs of kind check: test whether an environment can be learned, before training on it."""

from __future__ import annotations

from sparring.contracts.proof_specs import CheckSpec
from sparring.jobs.case_loader import RunCases
from sparring.jobs.job import Job


def run(job: Job) -> str:
    """Run a check. Another process reads the cases while this one imports torch."""
    spec = CheckSpec.model_validate(job.spec)
    cases = RunCases(job.folder, spec, is_unsandboxed=spec.settings.unsandboxed)
    from sparring.jobs.check.job import check_environment

    return check_environment(job.folder, spec, cases, job.heartbeat)
