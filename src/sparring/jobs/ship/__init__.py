"""Runs of kind ship: write the trained model to a folder, after it has been verified."""

from __future__ import annotations

from sparring.contracts.ship_specs import ShipSpec
from sparring.jobs.job import Job


def run(job: Job) -> str:
    """Run a shipment. This process reads the held-out cases itself: nothing is trained in it."""
    from sparring.jobs.ship.job import ship_model

    return ship_model(job.folder, ShipSpec.model_validate(job.spec), job.heartbeat)
