"""Runs of kind train: train, checkpoint, validate."""

from __future__ import annotations

from sparring.contracts.training import TrainSpec
from sparring.jobs.case_loader import RunCases
from sparring.jobs.job import Job


def run(job: Job) -> str:
    """Run the training. Another process reads the cases while this one imports torch."""
    spec = TrainSpec.model_validate(job.spec)
    cases = RunCases(job.folder, spec, is_unsandboxed=spec.settings.unsandboxed)
    from sparring.jobs.train.job import train_environment

    return train_environment(
        job.folder, spec, cases, accept_changes=job.accept_changes, heartbeat=job.heartbeat
    )
