"""Runs the shipment that a spec describes."""

from __future__ import annotations

from sparring.contracts.ship_specs import ShipSpec
from sparring.jobs.environment_opening import opened
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.report import try_to_write_report
from sparring.jobs.ship.shipment import Shipment
from sparring.run_folder import RunFolder


def ship_model(folder: RunFolder, spec: ShipSpec, heartbeat: Heartbeat) -> str:
    """Write, verify and publish the model, write the report, and return "completed"."""
    with opened(
        folder, spec.target, spec.config, is_unsandboxed=spec.play.unsandboxed
    ) as environment:
        Shipment(folder, spec, environment, heartbeat).run()
    try_to_write_report(folder)
    return "completed"
