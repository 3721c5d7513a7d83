"""The report of an audit is built from its summary alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.summaries import AuditSummary
from sparring.jobs.audit.report import comparable, document
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from tests.summaries import completed

FINDING = {"measure": "short", "fault": "flaky", "message": "it wavers", "rollout": "learner/a.0.0"}


def folder_of(place: Path, findings: list[dict[str, str]]) -> RunFolder:
    folder = RunFolder(place / "audit-shop")
    folder.create({"format": 1, "kind": "audit"})
    summary = {"environment": "shop", "judgements": 96, "measures": {"short": 1.0}}
    write_json(folder.summary, completed(AuditSummary, {**summary, "audit": findings}))
    return folder


def test_findings_are_counted_in_the_title_and_listed_with_a_rollout(tmp_path: Path) -> None:
    made = document(folder_of(tmp_path, [FINDING]))
    assert made.title == "shop: 1 finding"
    text = made.markdown()
    assert "96 judgements of short" in text
    assert "| short | flaky | it wavers | learner/a.0.0 |" in text


def test_an_audit_without_findings_is_reported_as_such(tmp_path: Path) -> None:
    assert document(folder_of(tmp_path, [])).title == "shop: nothing found"


def test_an_audit_that_has_not_completed_has_no_report(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "audit-shop")
    folder.create({"format": 1, "kind": "audit"})
    with pytest.raises(InvalidInput, match="run audit-shop has no results to report yet"):
        document(folder)


def test_null_players_are_not_compared_with_models(tmp_path: Path) -> None:
    assert comparable(folder_of(tmp_path, [FINDING]), {"kind": "audit"}) == {}
