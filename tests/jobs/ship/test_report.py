"""The report of a shipment is made from its folder; it is compared by its held-out rollouts."""

from __future__ import annotations

from pathlib import Path

from sparring.contracts.summaries import ShipSummary
from sparring.jobs.ship.report import comparable, document
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.run_folder.rollout_log import RolloutWriter
from tests.proofs.made import answered
from tests.summaries import completed
from tests.surfaces.cli.test_ship_tables import SUMMARY


def test_a_shipment_is_reported_and_compared(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "ship-bell-1")
    folder.create({"format": 1, "kind": "ship"})
    write_json(folder.summary, completed(ShipSummary, SUMMARY))
    with RolloutWriter(folder.rollouts_of("held-out")) as writer:
        writer.append(answered("c1", 1.0), 0.1)
    assert document(folder).title == "porter: equal"
    found = comparable(folder, folder.read_spec())
    assert [each.case.id for each in found["held-out"]] == ["c1"]
