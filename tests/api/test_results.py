"""A training in Python with its proof and its shipment, and how results are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring import TrainResult, evaluate, prove, ship, train
from sparring.contracts.summaries import Standing
from sparring.errors import InvalidInput, NotProved, RunNotFound
from sparring.runs.index import Index, Query
from tests.api.small_talk import SmallTalk, shown_by


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(tiny_folder: Path, runs: Path) -> TrainResult:
    return train(
        SmallTalk(), model=str(tiny_folder), max_steps=2, validation_cases=8, save_steps=1,
        cases_per_batch=4, replacement_groups=0, runs=runs, show_progress=False,
    )  # fmt: skip


def test_a_training_is_shown_with_its_rewards_as_a_curve(trained):
    shown = shown_by(trained)
    lines = shown.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2  # rewards of training and validation
    assert len(lines[0].get("points").split()) == 2  # steps
    assert trained.run in repr(trained)


def test_a_run_from_python_is_listed_under_its_environment(trained, runs):
    found = Index(runs).page(Query(environment="small_talk", count=9))
    assert trained.run in [row.id for row in found]
    assert trained.run.startswith("small-talk-")


def test_a_training_is_proved_by_its_result_and_shipped_with_the_proof(trained, tmp_path):
    proof = prove(trained, rollouts=1, show_progress=False)
    assert proof.verdict in Standing
    assert proof.why == proof.summary.sentence
    assert proof.summary.cases == 20
    assert proof.run.startswith("proof-small-talk-")
    assert shown_by(proof).find(".//tr/th").text == "reward"
    if proof.verdict is not Standing.BETTER:
        with pytest.raises(NotProved, match="the verdict of proof-small-talk"):
            ship(trained, tmp_path / "refused", show_progress=False)
    shipped = ship(
        trained, tmp_path / "model", unproven=True, forms=["merged"], cases=0, validation_cases=2,
        show_progress=False,
    )  # fmt: skip
    assert shipped.summary.proof == proof.run
    assert (shipped.path / "merged" / "model.safetensors").is_file()
    assert shown_by(shipped).findall(".//tr/th")[1].text == "merged"


def test_a_run_from_python_needs_its_parts_again_when_it_comes_by_its_id(trained, runs):
    with pytest.raises(InvalidInput, match=r"pass them to prove\(\), as you did to train\(\)"):
        prove(trained.run, runs=runs)
    with pytest.raises(InvalidInput, match=r"pass them to ship\(\)"):
        ship(trained.folder.path)
    with pytest.raises(RunNotFound, match="there is no training 'none'"):
        prove("none", runs=runs)
    with pytest.raises(InvalidInput, match="not int"):
        prove(3)  # type: ignore[arg-type]


def test_a_run_from_python_is_proved_by_its_folder_with_its_parts(trained):
    proof = prove(
        trained.folder.path, SmallTalk(), cases=20, rollouts=1, split="validation",
        show_progress=False,
    )  # fmt: skip
    assert proof.summary.split == "validation"


def test_an_evaluation_shows_the_pass_rate_of_each_measure(trained, tmp_path):
    result = evaluate(
        SmallTalk(), policy=trained.policy, cases=2, runs=tmp_path, show_progress=False
    )
    assert list(result.pass_rates) == ["even"]
    assert shown_by(result).find(".//tr/th").text == "even"
    assert result.folder.read_spec()["environment"] == "small_talk"


def test_an_unknown_quantisation_is_refused_with_those_that_exist(trained, tmp_path):
    with pytest.raises(InvalidInput, match="unknown quantisation 'q9_0'; choose from f32"):
        ship(trained, tmp_path / "out", unproven=True, quantizations=["q9_0"])
