"""Runs of kind eval: play cases, judge and log every rollout, write a summary."""

from __future__ import annotations

from sparring.contracts.cases import Split
from sparring.contracts.specs import EvalSpec
from sparring.jobs.attempt import Attempt
from sparring.jobs.case_loader import RunCases


def run(attempt: Attempt) -> str:
    """Run an evaluation. Another process reads the cases, unless they are held-out cases."""
    spec = EvalSpec.model_validate(attempt.spec)
    cases = None
    if spec.split is not Split.HELD_OUT:
        cases = RunCases(attempt.folder, spec, is_unsandboxed=spec.play.unsandboxed)
    from sparring.jobs.eval.job import evaluate_environment

    return evaluate_environment(attempt.folder, spec, cases, attempt.heartbeat)
