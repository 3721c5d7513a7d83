"""Runs of kind train: train, checkpoint, validate."""

from __future__ import annotations

from sparring.contracts.training import TrainSpec
from sparring.jobs.attempt import Attempt
from sparring.jobs.case_loader import RunCases


def run(attempt: Attempt) -> str:
    """Run a training. Another process reads the cases while this process imports torch."""
    spec = TrainSpec.model_validate(attempt.spec)
    cases = RunCases(attempt.folder, spec, is_unsandboxed=spec.settings.unsandboxed)
    from sparring.jobs.train.job import train_environment

    return train_environment(
        attempt.folder,
        spec,
        cases,
        accept_changes=attempt.accept_changes,
        heartbeat=attempt.heartbeat,
    )
