"""Reports and comparisons are made by a job; operators see no cases in them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sparring.contracts.errors import InvalidInput, NotPermitted, RunNotFound, SparringError
from sparring.operations import reporting
from sparring.operations.operation import Caller
from sparring.operations.reporting import CompareRuns, Comparison, compare_runs, report_run
from sparring.operations.run_views import RunQuery
from tests.operations.handmade import agent_in, make_run, owner_of

FOUND: dict[str, Any] = {
    "runs": ["shop-1", "shop-2"],
    "settings": [["beta", [0.1, 0.2]], ["lora", [None, 4]]],
    "differences": [{"measure": "right", "flips": [{"case": "c1"}]}],
}


@pytest.fixture
def owner(tmp_path: Path) -> Caller:
    caller = owner_of(tmp_path)
    for name in ("shop-1", "shop-2"):
        make_run(caller, name)
    return caller


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return agent_in(owner.folder)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """The file in which an interpreter notes its arguments, before it does this."""
    place, arguments = folder / "interpreter", folder / "arguments"
    lines = f'for each in "$@"; do echo "$each"; done > \'{arguments}\''
    place.write_text(f"#!/bin/sh\n{lines}\n{script}\n")
    place.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(place))
    return arguments


def test_a_report_is_of_the_run_that_was_found(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = stand_in(tmp_path, monkeypatch, "echo done")
    report = report_run(RunQuery(run="shop-1"), owner)
    assert arguments.read_text().splitlines() == [
        "-m",
        "sparring.jobs.report",
        str(owner.runs / "shop-1"),
    ]
    assert report.run == "shop-1"
    assert Path(report.html).parent == Path(report.markdown).parent == owner.runs / "shop-1/report"


def test_a_comparison_is_what_the_job_printed_last(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = stand_in(tmp_path, monkeypatch, f"echo reading; echo '{json.dumps(FOUND)}'")
    found = compare_runs(CompareRuns(runs=("shop-1", "shop-2")), owner)
    _, _, html, *folders = arguments.read_text().splitlines()
    assert folders == [str(owner.runs / name) for name in ("shop-1", "shop-2")]
    assert found.html == html
    assert found.differences == ({"measure": "right", "flips": [{"case": "c1"}]},)


def test_an_operator_sees_no_cases_and_gets_no_page(
    operator: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = stand_in(tmp_path, monkeypatch, f"echo '{json.dumps(FOUND)}'")
    found = compare_runs(CompareRuns(runs=("shop-1", "shop-2")), operator)
    assert found.differences == ({"measure": "right", "flips": []},)
    assert found.html == arguments.read_text().splitlines()[2] == ""
    with pytest.raises(NotPermitted, match="needs the role owner"):
        report_run(RunQuery(run="shop-1"), operator)


def test_two_different_runs_are_compared(owner: Caller) -> None:
    with pytest.raises(ValidationError):
        CompareRuns(runs=("shop-1",))
    with pytest.raises(InvalidInput, match="name each run once: shop-1, shop-1"):
        compare_runs(CompareRuns(runs=("shop-1", "shop-1")), owner)
    with pytest.raises(RunNotFound):
        compare_runs(CompareRuns(runs=("shop-1", "nothing")), owner)


def test_a_short_comparison_leaves_out_settings_that_one_run_lacks() -> None:
    short = Comparison.model_validate(FOUND).short()
    assert [name for name, _ in short.settings] == ["beta"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo Traceback >&2; echo 'no rollouts' >&2; exit 1", "report: no rollouts"),
        ("exit 1", "report: it failed without a message"),
        ("true", "report: it failed without a message"),
    ],
)
def test_a_job_that_fails_or_says_nothing_is_an_error(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    stand_in(tmp_path, monkeypatch, script)
    with pytest.raises(SparringError) as refused:
        report_run(RunQuery(run="shop-1"), owner)
    assert str(refused.value) == message


def test_a_job_that_takes_too_long_is_ended(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(reporting, "_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(SparringError, match=r"report: not finished within 0\.05 s"):
        report_run(RunQuery(run="shop-1"), owner)
