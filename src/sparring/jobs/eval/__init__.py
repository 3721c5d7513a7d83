"""Runs of kind eval: play cases, judge them, log every rollout, write a summary."""

from __future__ import annotations

from sparring.contracts.cases import Split
from sparring.contracts.specs import EvalSpec
from sparring.jobs.case_loader import RunCases
from sparring.jobs.job import Job


def run(job: Job) -> str:
    """Run an evaluation. Another process reads the cases while this one imports torch."""
    spec = EvalSpec.model_validate(job.spec)
    cases = None
    if spec.split is not Split.HELD_OUT:
        cases = RunCases(job.folder, spec, is_unsandboxed=spec.play.unsandboxed)
    from sparring.jobs.eval.job import evaluate_environment

    return evaluate_environment(job.folder, spec, cases, job.heartbeat)
