"""Runs of kind ship: write a trained model as artefacts, verify them, and publish the folder."""

from __future__ import annotations

from sparring.contracts.ship_specs import ShipSpec
from sparring.jobs.attempt import Attempt


def run(attempt: Attempt) -> str:
    """Run a shipment. This process may read held-out cases, because it does not train."""
    from sparring.jobs.ship.job import ship_model

    return ship_model(attempt.folder, ShipSpec.model_validate(attempt.spec), attempt.heartbeat)
