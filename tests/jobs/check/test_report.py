"""A check is compared by the rollouts of the model to be trained, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.summaries import CheckSummary
from sparring.jobs.check.report import comparable, document
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.run_folder.rollout_log import RolloutWriter
from tests.proofs.made import answered
from tests.summaries import completed

SUMMARY = {
    "environment": "triage", "verdict": "too hard", "why": "nothing passes", "model": "tiny",
    "group_size": 4, "cases": [], "notes": [], "live": [], "models": [], "estimate": None,
    "audit": [],
    "figures": {
        "measures": {}, "parse_rate": 1.0, "called_a_tool": None, "truncated": 0.25,
        "tool_failures": {}, "unscored": 0, "rollouts": 4,
    },
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "check-triage")
    made.create({"format": 1, "kind": "check"})
    return made


def test_the_verdict_is_the_title_and_a_check_without_one_has_no_report(folder: RunFolder) -> None:
    with pytest.raises(InvalidInput, match="let it complete first"):
        document(folder)
    write_json(folder.summary, completed(CheckSummary, SUMMARY))
    made = document(folder)
    assert made.title == "triage: too hard"
    assert "nothing passes" in made.markdown()


def test_only_the_rollouts_of_the_learner_are_compared(folder: RunFolder) -> None:
    for player, case in (("learner", "a"), ("1-big", "b")):
        with RolloutWriter(folder.rollouts_of(player)) as writer:
            writer.append(answered(case, 1.0), 0.1)
    found = comparable(folder, {"kind": "check"})
    assert {split: [each.case.id for each in played] for split, played in found.items()} == {
        "training": ["a"]
    }
