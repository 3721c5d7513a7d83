"""The report of a run is written from its folder by its kind; its failure fails no run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, RunNotFound
from sparring.contracts.kinds import KINDS
from sparring.jobs.report import document_of, try_to_write_report, write_report
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_lines, write_json
from tests.summaries import completed

AUDIT = {"environment": "shop", "judgements": 9, "measures": {"exact": 1.0}, "audit": []}


def run_of(place: Path, kind: str, summary: dict[str, Any] | None = None) -> RunFolder:
    folder = RunFolder(place / f"{kind}-shop")
    folder.create({"format": 1, "kind": kind, "target": "shop.py:Shop"})
    if summary is not None:
        write_json(folder.summary, completed(KINDS[kind].summary, summary))
    return folder


def test_html_and_markdown_are_written_and_the_html_is_named(tmp_path: Path) -> None:
    folder = run_of(tmp_path, "audit", AUDIT)
    assert write_report(folder) == folder.report
    assert "nothing found" in folder.report.read_text()
    assert folder.report_text.read_text().startswith("# shop: nothing found")


def test_each_kind_has_a_report_of_its_own(tmp_path: Path) -> None:
    assert document_of(run_of(tmp_path, "audit", AUDIT)).title == "shop: nothing found"
    assert document_of(run_of(tmp_path, "train")).title == "train-shop: training"


def test_an_unknown_kind_and_a_folder_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="kind is 'dance'; this version knows audit, check"):
        document_of(run_of(tmp_path, "dance"))
    with pytest.raises(RunNotFound, match=r"no spec\.json"):
        write_report(RunFolder(tmp_path / "nothing"))


def test_a_report_that_fails_is_a_warning_and_raises_nothing(tmp_path: Path) -> None:
    folder = run_of(tmp_path, "audit")
    try_to_write_report(folder)
    (event,) = read_lines(folder.events)
    assert (event["event"], event["author"]) == ("warning", "worker")
    assert event["message"].startswith("no report was written: InvalidInput: run audit-shop has")
    assert not folder.report.exists()
