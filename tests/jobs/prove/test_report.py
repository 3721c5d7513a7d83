"""The report of a proof shows flipped cases of both sides, and the training that it proves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.summaries import ProveSummary
from sparring.jobs.prove.report import comparable, document
from sparring.reports.document import SideBySide
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.run_folder.rollout_log import RolloutWriter
from tests.proofs.made import answered
from tests.summaries import completed

FLIPS = 14


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "proof-swift-lark")
    made.create({"format": 1, "kind": "prove", "split": "held-out"})
    for player, reward in (("base", 0.0), ("trained", 1.0)):
        with RolloutWriter(made.rollouts_of(player)) as writer:
            for number in range(FLIPS):
                writer.append(answered(f"c{number}", reward, answer=f"said by {player}"), 0.1)
    return made


def summary(**given: Any) -> dict[str, Any]:
    flips = [
        {"case": f"c{n}", "before": 0.0, "after": 1.0, "base": f"c{n}.0.0", "trained": f"c{n}.0.0"}
        for n in range(FLIPS)
    ]
    return {
        "environment": "shop", "verdict": "better", "sentence": "It is better.", "model": "tiny",
        "training": "swift-lark", "checkpoint": "runs/swift-lark/checkpoints/step-4",
        "cases": FLIPS, "split": "held-out", "rollouts_per_case": 1, "reward": None,
        "measures": {}, "picked_from": 1, "proofs_on_these_cases": 1, "regressed": [],
        "flips": flips, "audit": None, **given,
    }  # fmt: skip


def test_the_first_flips_are_shown_with_the_rollouts_of_both_models(folder: RunFolder) -> None:
    write_json(folder.summary, completed(ProveSummary, summary()))
    made = document(folder)
    assert made.title == "shop: better"
    shown = [each for each in made.blocks if isinstance(each, SideBySide)]
    assert len(shown) == 12
    for column, player in zip(shown[0].columns, ("base", "trained"), strict=True):
        assert ("assistant", f"said by {player}") in column.lines
    assert "Cases that flipped: 14, of which 12 are shown" in made.markdown()


def test_the_training_is_described_where_its_folder_is_still_there(folder: RunFolder) -> None:
    write_json(folder.summary, completed(ProveSummary, summary()))
    assert "What was trained" not in document(folder).markdown()
    training = RunFolder(folder.path.parent / "swift-lark")
    training.create({"format": 1, "kind": "train", "environment": "shop"})
    assert "What was trained" in document(folder).markdown()


def test_a_flip_whose_rollout_is_not_logged_is_refused(folder: RunFolder) -> None:
    lost = {"case": "x", "before": 0.0, "after": 1.0, "base": "x.0.0", "trained": "x.0.0"}
    write_json(folder.summary, completed(ProveSummary, summary(flips=[lost])))
    with pytest.raises(InvalidInput, match=r"no rollout 'x\.0\.0'"):
        document(folder)


def test_a_proof_is_compared_by_the_rollouts_of_the_trained_model(folder: RunFolder) -> None:
    found = comparable(folder, folder.read_spec())
    assert list(found) == ["held-out"]
    assert {each.answer for each in found["held-out"]} == {"said by trained"}
    assert len(found["held-out"]) == FLIPS
