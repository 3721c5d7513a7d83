"""The report of a shipment: rows for every file, and a picture of those that were played."""

from __future__ import annotations

from sparring.reports.document import Grid, Picture
from sparring.reports.ship_report import ship_report
from tests.summaries import completing
from tests.surfaces.cli.test_ship_tables import SUMMARY


def test_every_file_has_a_row_and_played_ones_are_drawn() -> None:
    blocks = completing(ship_report)(SUMMARY).blocks
    (files, _) = [each for each in blocks if isinstance(each, Grid)]
    assert [row[0] for row in files.rows] == ["gguf/porter-q8_0.gguf", "merged"]
    assert files.rows[0][6:8] == ("0.90", "equal")
    assert [each for each in blocks if isinstance(each, Picture)]
    unplayed = {**SUMMARY, "artefacts": SUMMARY["artefacts"][1:]}
    assert not [
        each for each in completing(ship_report)(unplayed).blocks if isinstance(each, Picture)
    ]
