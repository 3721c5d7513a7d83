"""A shipment runs in its opened environment and ends with a report, whatever its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.ship_specs import ShipSpec
from sparring.environments import Environment
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.ship import job
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from tests.surfaces.cli.test_ship_tables import SUMMARY

SHOP = """
from sparring import Environment
class Shop(Environment):
    pass
"""


class Shipped:
    """Stands for a shipment that was made: only its summary is left."""

    def __init__(self, folder: RunFolder, _: ShipSpec, environment: Environment, __: Any) -> None:
        assert type(environment).__name__ == "Shop"
        self._folder = folder

    def run(self) -> None:
        write_json(self._folder.summary, {**SUMMARY, "verdict": "worse"})


def test_it_completes_with_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.setattr(job, "Shipment", Shipped)
    spec = ShipSpec(target=f"{tmp_path / 'shop.py'}:Shop", run="r", to=str(tmp_path / "x"))
    folder = RunFolder(tmp_path / "ship-shop-1")
    folder.create(spec.model_dump(mode="json"))
    assert job.ship_model(folder, spec, Heartbeat(folder, 0, None)) == "completed"
    assert folder.report_text.read_text().startswith("# porter: worse")
