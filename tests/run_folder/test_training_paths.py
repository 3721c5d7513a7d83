"""The end of a run's id stands for a training run, in a path as well as by itself."""

from __future__ import annotations

from pathlib import Path

from sparring.run_folder.files import write_json
from sparring.run_folder.training_paths import existing_folder, trainings_named, whole_path

TALK = "talk-20261116-184334-8542"


def run(runs: Path, name: str, kind: str) -> Path:
    (runs / name).mkdir()
    write_json(runs / name / "spec.json", {"kind": kind}, durable=False)
    return runs / name


def test_a_training_is_found_and_its_proof_is_not(tmp_path: Path) -> None:
    training = run(tmp_path, TALK, "train")
    run(tmp_path, f"proof-{TALK}", "prove")
    assert whole_path(tmp_path / "8542") == training
    assert whole_path(tmp_path / "184334-8542") == training


def test_other_paths_are_returned_unchanged(tmp_path: Path) -> None:
    training = run(tmp_path, TALK, "train")
    (tmp_path / "8542").mkdir()
    (tmp_path / "model-1f2e").mkdir()  # no run
    others = [tmp_path / "8542", training, tmp_path / "542", tmp_path / "1f2e"]
    for path in (*others, tmp_path / "gone" / "8542", Path("smollm2"), Path(), Path("x" * 5000)):
        assert whole_path(path) == path
    assert existing_folder(training) == training
    assert existing_folder(tmp_path / "542") is existing_folder(Path("x" * 5000)) is None


def test_several_trainings_are_all_named(tmp_path: Path) -> None:
    both = [run(tmp_path, f"{name}-20261116-184334-8542", "train") for name in ("a", "b")]
    assert trainings_named(tmp_path / "8542") == both
    assert whole_path(tmp_path / "8542") == tmp_path / "8542"
