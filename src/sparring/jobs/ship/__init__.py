"""Runs of kind ship: write the trained model to a folder, after it has been verified."""

from __future__ import annotations

from sparring.contracts.ship_specs import ShipSpec
from sparring.jobs.attempt import Attempt


def run(attempt: Attempt) -> str:
    """Run a shipment. This process reads the held-out cases itself: nothing is trained in it."""
    from sparring.jobs.ship.job import ship_model

    return ship_model(attempt.folder, ShipSpec.model_validate(attempt.spec), attempt.heartbeat)
