"""`result.ship(…)`: forms by name, and what a run from Python needs again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.api.shipping import ShipResult, known_names, ship_training
from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import Form
from sparring.contracts.specs import python_target
from sparring.contracts.summaries import ShipSummary
from sparring.contracts.training import TrainSpec
from sparring.run_folder import RunFolder
from tests.summaries import complete


def test_forms_are_given_by_name() -> None:
    assert known_names("form", ["merged", "gguf"], list(Form)) == ("merged", "gguf")
    with pytest.raises(InvalidInput, match="there are adapter, merged, gguf, ollama"):
        known_names("form", ["zip"], list(Form))


def test_a_run_from_python_needs_its_suite_and_measures_again(tmp_path: Path) -> None:
    training = RunFolder(tmp_path / "talker-1")
    training.create(TrainSpec(target=python_target("talker")).model_dump(mode="json"))
    with pytest.raises(InvalidInput, match=r"pass suite=… and the other parts to ship\(\)"):
        ship_training(training, tmp_path / "out", None, {})


def test_a_result_reads_as_its_verdict_and_folder() -> None:
    result = ShipResult(
        Path("/x/model"), complete(ShipSummary, {"verdict": "equal", "sentence": "no loss"})
    )
    assert str(result) == "equal: no loss\n/x/model"
