"""Spec and summary of a run are read as the models that wrote them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import KINDS
from sparring.contracts.specs import EvalSpec
from sparring.contracts.summaries import AuditSummary, EvalSummary, TrainSummary
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import (
    find_summary,
    read_run_spec,
    read_summary,
    write_summary,
)
from sparring.run_folder.files import write_json
from tests.summaries import complete

SAMPLES = sorted((Path(__file__).parents[1] / "samples" / "runs").glob("*/report/summary.json"))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "swift-lark")
    made.create(EvalSpec(target="shop.py:Shop").model_dump(mode="json"))
    return made


def test_a_spec_is_of_its_kind_and_says_which_field_is_wrong(folder: RunFolder) -> None:
    assert read_run_spec(folder) == EvalSpec(target="shop.py:Shop")
    write_json(folder.spec, {"kind": "eval", "target": "x", "cases": 0})
    with pytest.raises(InvalidInput, match=r"spec\.json: cases: .* greater than or equal to 1"):
        read_run_spec(folder)
    write_json(folder.spec, {"kind": "dance"})
    with pytest.raises(InvalidInput, match="kind is 'dance'; this version knows audit"):
        read_run_spec(folder)


def test_a_run_without_results_is_told_to_complete_first(folder: RunFolder) -> None:
    assert find_summary(folder, EvalSummary) is None
    with pytest.raises(InvalidInput, match="run swift-lark has no results to report yet; let it"):
        read_summary(folder, EvalSummary)


@pytest.mark.parametrize("sample", SAMPLES, ids=[each.parts[-3] for each in SAMPLES])
def test_a_summary_is_written_as_it_was_read(folder: RunFolder, sample: Path) -> None:
    content = json.loads(sample.read_text())
    model = KINDS[content.get("kind", "eval")].summary
    write_json(folder.summary, content)
    summary = read_summary(folder, model)
    folder.summary.unlink()
    write_summary(folder, summary)
    written = json.loads(folder.summary.read_text())
    assert json.dumps(written, sort_keys=True) == json.dumps(content, sort_keys=True)
    other = AuditSummary if model is not AuditSummary else EvalSummary
    assert find_summary(folder, other) is None


def test_a_summary_with_a_field_that_nobody_knows_is_refused(folder: RunFolder) -> None:
    write_json(folder.summary, {"kind": "audit", "run": "r", "charm": 1})
    with pytest.raises(InvalidInput, match=r"summary\.json: measures: Field required"):
        read_summary(folder, AuditSummary)
    assert find_summary(folder, AuditSummary) is None


def test_a_loss_that_is_no_number_is_kept_as_it_is(folder: RunFolder) -> None:
    write_summary(folder, complete(TrainSummary, {"last": {"loss": math.nan}}))
    assert math.isnan(read_summary(folder, TrainSummary).last["loss"])
