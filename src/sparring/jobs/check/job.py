"""Runs the check that a spec describes."""

from __future__ import annotations

from sparring.contracts.proof_specs import CheckSpec
from sparring.environments.environment import read_parts
from sparring.jobs.case_loader import RunCases
from sparring.jobs.check.check import Check
from sparring.jobs.environment_opening import opened
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.report import try_to_write_report
from sparring.run_folder import RunFolder


def check_environment(
    folder: RunFolder, spec: CheckSpec, cases: RunCases, heartbeat: Heartbeat
) -> str:
    """Check an environment, write summary and report, and return "completed"."""
    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.settings.unsandboxed
    ) as environment:
        parts = read_parts(environment, lambda: cases.suite(environment))
        Check(folder, spec, environment, parts, heartbeat).run()
    try_to_write_report(folder)
    return "completed"
