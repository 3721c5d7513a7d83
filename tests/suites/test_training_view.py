"""The training view of a suite has all of it but its held-out cases."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.cases import Split
from sparring.contracts.errors import SplitTooSmall, SuiteError
from sparring.suites import Suite
from sparring.suites.splitting import question_digest
from sparring.suites.training_view import TrainingView, write_training_view

OPEN = (Split.TRAINING, Split.VALIDATION)


def rows(**counts: int) -> list[dict[str, Any]]:
    """Records of these numbers of cases in splits, one split after the other in turn."""
    return [
        {"input": f"{split} question {number}", "expected": (number, "a"), "split": split}
        for number in range(max(counts.values()))
        for split, count in counts.items()
        if number < count
    ]


def view_of(suite: Suite, folder: Path) -> TrainingView:
    with (folder / "view").open("wb") as file:
        write_training_view(suite, file)
    return TrainingView((folder / "view").open("rb"))


@pytest.fixture
def suite() -> Suite:
    return Suite.from_records(rows(test=3, train=5, dev=4), minimum_cases=2)


@pytest.fixture
def view(suite: Suite, tmp_path: Path) -> TrainingView:
    return view_of(suite, tmp_path)


def test_a_view_has_the_cases_of_training_and_validation(suite: Suite, view: TrainingView) -> None:
    for split in OPEN:
        assert list(view.cases(split)) == list(suite.cases(split))
        assert list(view.cases(split, limit=1)) == list(suite.cases(split))[:1]
        assert view.case_ids(split) == suite.case_ids(split)
        last = suite.case_ids(split)[-1]
        assert view.finder(split)(last) == suite.finder(split)(last)


def test_a_view_describes_the_whole_suite(suite: Suite, view: TrainingView) -> None:
    assert (view.digest, len(view), repr(view)) == (suite.digest, 12, repr(suite))
    assert (view.minimum, view.splitter, view.names_splits) == (2, suite.splitter, True)
    assert [view.size(split) for split in Split] == [5, 4, 3]
    for split in Split:
        assert view.question_digests(split) == suite.question_digests(split)


def test_a_view_refuses_held_out_cases(view: TrainingView) -> None:
    for read in (view.cases, view.case_ids):
        with pytest.raises(SuiteError, match="no held-out cases; `sparring prove` plays them"):
            read(Split.HELD_OUT)
    assert {case.split for case in view.all_but(Split.TRAINING)} == {Split.VALIDATION}


def test_the_file_has_no_word_of_a_held_out_case(
    suite: Suite, view: TrainingView, tmp_path: Path
) -> None:
    written = (tmp_path / "view").read_bytes()
    assert b"train question 4" in written
    assert b"test question" not in written
    leaked = question_digest("Test  question 0")
    assert leaked in view.question_digests(Split.HELD_OUT)


def test_splits_by_share_are_kept(tmp_path: Path) -> None:
    records = [{"input": f"question {number}"} for number in range(60)]
    shares = {"training": 0.5, "validation": 0.3, "held-out": 0.2}
    suite = Suite.from_records(records, shares=shares, minimum_cases=1)
    view = view_of(suite, tmp_path)
    assert not view.names_splits
    assert [view.size(split) for split in Split] == [suite.size(split) for split in Split]
    assert list(view.all_but(Split.HELD_OUT)) == list(suite.all_but(Split.HELD_OUT))


def test_a_view_is_as_strict_about_small_splits_as_its_suite(tmp_path: Path) -> None:
    suite = Suite.from_records(rows(train=5, dev=2), minimum_cases=3)
    view = view_of(suite, tmp_path)
    assert len(list(view.cases(Split.TRAINING))) == 5
    for each in (suite, view):
        with pytest.raises(SplitTooSmall, match="give 1 more records the `split` validation"):
            list(each.cases(Split.VALIDATION))


def test_a_suite_of_held_out_cases_only_leaves_an_empty_view(tmp_path: Path) -> None:
    view = view_of(Suite.from_records(rows(test=4), minimum_cases=0), tmp_path)
    assert list(view.all_but(Split.HELD_OUT)) == []
    assert (len(view), view.size(Split.TRAINING), view.size(Split.HELD_OUT)) == (4, 0, 4)


def test_a_case_that_cannot_be_passed_on_is_named() -> None:
    records = rows(train=3)
    records[1]["judge"] = lambda: 1
    suite = Suite.from_records(records, id=lambda record: record["input"], minimum_cases=0)
    with pytest.raises(SuiteError, match=r"case train question 1 has a value that cannot be"):
        write_training_view(suite, io.BytesIO())


def test_a_held_out_case_need_not_be_passed_on(tmp_path: Path) -> None:
    records = rows(train=2, test=1)
    records[1]["judge"] = lambda: 1
    assert records[1]["split"] == "test"
    view = view_of(Suite.from_records(records, minimum_cases=0), tmp_path)
    assert len(list(view.cases(Split.TRAINING))) == 2
