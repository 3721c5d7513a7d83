"""A training run is reported at any time, and compared by its proof or its last validation."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.summaries import ProveSummary, TrainSummary
from sparring.jobs.train.report import comparable, document, training_facts
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, write_json
from sparring.run_folder.rollout_log import RolloutWriter
from tests.proofs.made import answered
from tests.summaries import completed


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "swift-lark")
    made.create({"format": 1, "kind": "train", "environment": "shop", "target": "shop.py:Shop"})
    return made


def checkpoint(folder: RunFolder, step: int, score: float | None) -> None:
    manifest = {"step": step, "score": score, "versions": {"torch": f"2.{step}"}}
    write_json(folder.checkpoints / f"step-{step}" / "manifest.json", manifest)


def at_step(step: int, case: str) -> Rollout:
    made = answered(case, 1.0)
    return Rollout(RolloutKey(0, step, case, 0), made.case, made.ending, "", reward=1.0)


def log(place: Path, *rollouts: Rollout) -> None:
    with RolloutWriter(place) as writer:
        for each in rollouts:
            writer.append(each, 0.1)


def test_a_training_without_results_has_a_report(folder: RunFolder) -> None:
    facts = training_facts(folder)
    assert (facts.summary, facts.history, facts.manifest) == (None, [], {})
    made = document(folder)
    assert made.title == "shop: training"
    assert "swift-lark" in made.markdown()


def test_the_best_checkpoint_is_described_and_without_validation_the_last(
    folder: RunFolder,
) -> None:
    for step in (2, 4):
        checkpoint(folder, step, None)
    assert training_facts(folder).manifest["step"] == 4
    checkpoint(folder, 2, 0.9)
    checkpoint(folder, 4, 0.1)
    assert training_facts(folder).manifest["step"] == 2
    assert "2.2" in document(folder).markdown()


def test_metrics_and_summary_are_read_from_the_folder(folder: RunFolder) -> None:
    append_line(folder.metrics, {"attempt": 1, "step": 1, "reward": 0.5})
    write_json(folder.summary, completed(TrainSummary, {"plan": "4 cases × 4 rollouts"}))
    assert [row["reward"] for row in training_facts(folder).history] == [0.5]
    assert "4 cases × 4 rollouts" in document(folder).markdown()


def test_only_the_last_validation_of_all_ranks_is_compared(folder: RunFolder) -> None:
    assert comparable(folder, {}) == {"validation": []}
    log(folder.validation_rollouts(0), at_step(0, "a"), at_step(8, "a"))
    log(folder.validation_rollouts(1), at_step(0, "b"), at_step(8, "b"))
    found = comparable(folder, {})
    assert [each.id for each in found["validation"]] == ["a.8.0", "b.8.0"]


def test_a_completed_proof_comes_before_the_validation(folder: RunFolder) -> None:
    proof = RunFolder(folder.path.parent / "proof-swift-lark")
    log(proof.rollouts_of("base"), answered("base", 0.0))
    log(proof.rollouts_of("trained"), answered("trained", 1.0))
    assert list(comparable(folder, {})) == ["validation"]  # it has not completed
    write_json(proof.summary, completed(ProveSummary, {"split": "held-out"}))
    found = comparable(folder, {})
    assert list(found) == ["held-out", "validation"]
    assert [each.case.id for each in found["held-out"]] == ["trained"]
