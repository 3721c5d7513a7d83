"""An evaluation is reported from its summary and compared by all of its rollouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.summaries import EvalSummary
from sparring.jobs.eval.report import comparable, document
from sparring.proofs.eval_summary import EvalTally
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.run_folder.rollout_log import RolloutWriter
from tests.proofs.made import answered
from tests.summaries import completed


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1, "kind": "eval", "split": "validation"})
    return made


def test_the_pass_rate_of_each_measure_is_in_the_report(folder: RunFolder) -> None:
    with pytest.raises(InvalidInput, match="run run has no results"):
        document(folder)
    tally = EvalTally()
    for number in range(4):
        tally.add(answered(f"case {number}", float(number == 0)))
    write_json(folder.summary, completed(EvalSummary, {"run": "run", **tally.figures().as_json()}))
    made = document(folder)
    assert made.title == "run: evaluation"
    text = made.markdown()
    assert "| right | 25% |" in text
    assert "| unscored | 0 of 4 |" in text


def test_the_rollouts_of_every_rank_are_compared_under_the_split_of_the_spec(
    folder: RunFolder,
) -> None:
    for rank in (0, 1):
        with RolloutWriter(folder.rollouts(rank)) as writer:
            writer.append(answered(f"of rank {rank}", 1.0), 0.1)
    found = comparable(folder, folder.read_spec())
    assert {split: [each.case.id for each in played] for split, played in found.items()} == {
        "validation": ["of rank 0", "of rank 1"]
    }
