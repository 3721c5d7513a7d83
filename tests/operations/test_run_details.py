"""Settings are shown with their sources; checkpoints with their scores."""

from __future__ import annotations

from pathlib import Path

from sparring.operations.run_details import run_checkpoints, run_details
from sparring.operations.run_views import RunQuery
from sparring.run_folder.files import write_json
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


def test_the_model_has_the_source_that_set_it(tmp_path: Path) -> None:
    folder = make_training(tmp_path / "runs")
    spec = folder.read_spec()
    spec["policy"] = {"model": "tiny"}
    spec["sources"] = {**spec["sources"], "model": "the command"}
    spec["locks"] = {"model": "the owner"}
    write_json(folder.spec, spec)
    details = run_details(RunQuery(run=TRAINING), owner_in(tmp_path))
    (model,) = [each for each in details.settings if each.name == "policy.model"]
    assert (model.source, model.locked_by) == ("the command", "the owner")


def test_a_proof_names_its_training_and_its_settings(tmp_path: Path) -> None:
    folder = make_training(tmp_path / "runs")
    spec = {**folder.read_spec(), "kind": "prove", "run": "shop-1", "play": {"seed": 3}}
    del spec["settings"]
    write_json(folder.spec, spec)
    details = run_details(RunQuery(run=TRAINING), owner_in(tmp_path))
    assert details.training == "shop-1"
    assert {each.name: each.value for each in details.settings}["seed"] == 3
