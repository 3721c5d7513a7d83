"""Settings are shown with their sources; checkpoints with their scores."""

from __future__ import annotations

from pathlib import Path

from sparring.operations.run_details import run_checkpoints, run_details
from sparring.operations.run_views import RunQuery
from tests.surfaces.web.viewed import TRAINING, make_training, owner_in


def test_every_setting_has_a_source(tmp_path: Path) -> None:
    make_training(tmp_path / "runs")
    details = run_details(RunQuery(run=TRAINING), owner_in(tmp_path))
    sources = {each.name: each.source for each in details.settings}
    assert sources["learning_rate"] == "sparring.toml:3"
    assert sources["temperature"] == "defaults"
    assert sources["guards.entropy.limit"] == "defaults"


def test_checkpoints_have_a_size_and_one_is_the_best(tmp_path: Path) -> None:
    make_training(tmp_path / "runs")
    (found,) = run_checkpoints(RunQuery(run=TRAINING), owner_in(tmp_path)).checkpoints
    assert (found.step, found.score, found.is_best, found.bytes) == (2, 0.5, True, 1000)
