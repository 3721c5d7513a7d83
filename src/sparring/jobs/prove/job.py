"""Runs the proof that a spec describes."""

from __future__ import annotations

from sparring.contracts.proof_specs import ProveSpec
from sparring.jobs.environment_opening import opened
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.prove.proving import Proving
from sparring.jobs.report import try_to_write_report
from sparring.run_folder import RunFolder


def prove_environment(folder: RunFolder, spec: ProveSpec, heartbeat: Heartbeat) -> str:
    """Prove a training run, write summary and report, and return "completed"."""
    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.play.unsandboxed
    ) as environment:
        Proving(folder, spec, environment, heartbeat).run()
    try_to_write_report(folder)
    return "completed"
