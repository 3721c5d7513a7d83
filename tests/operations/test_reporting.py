"""Reports are written on request; runs are compared by a job, and operators see no cases."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sparring.contracts.errors import InvalidInput, NotPermitted, RunNotFound, SparringError
from sparring.contracts.summaries import ProveSummary
from sparring.operations import reporting
from sparring.operations.operation import Caller
from sparring.operations.reporting import CompareRuns, Comparison, compare_runs, report_run
from sparring.operations.run_views import RunQuery
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from tests.operations.handmade import agent_in, make_run, owner_of
from tests.summaries import completed

FOUND: dict[str, Any] = {
    "runs": ["shop-1", "shop-2"],
    "settings": [["beta", [0.1, 0.2]], ["lora", [None, 4]]],
    "differences": [{"measure": "right", "flips": [{"case": "c1"}], "sides": []}],
    "format": 1,
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


def test_a_report_is_one_file_in_the_folder_of_the_run(owner: Caller) -> None:
    report = report_run(RunQuery(run="shop-1"), owner)
    assert (report.run, report.markdown) == ("shop-1", "")
    assert Path(report.html) == owner.runs / "shop-1" / "report" / "report.html"
    assert "<title>shop-1</title>" in Path(report.html).read_text()


def test_a_proof_also_has_a_card(owner: Caller) -> None:
    folder = RunFolder(owner.runs / "proof-1")
    folder.create({"format": 1, "kind": "prove", "split": "held-out"})
    write_json(
        folder.summary,
        completed(ProveSummary, {"run": "proof-1", "verdict": "better", "sentence": "It is."}),
    )
    report = report_run(RunQuery(run="proof-1"), owner)
    assert Path(report.markdown).read_text().startswith("# proof-1: better\n\n**better**: It is.")


@pytest.mark.parametrize("kind", ["audit", "check", "eval", "prove", "ship"])
def test_only_a_training_has_a_report_before_its_end(owner: Caller, kind: str) -> None:
    folder = RunFolder(owner.runs / f"{kind}-1")
    folder.create({"format": 1, "kind": kind})
    with pytest.raises(InvalidInput, match=f"run {kind}-1 has no results to report yet"):
        report_run(RunQuery(run=folder.id), owner)
    assert not folder.report.exists()


def test_a_kind_of_run_that_is_not_known_is_refused(owner: Caller) -> None:
    RunFolder(owner.runs / "dance-1").create({"format": 1, "kind": "dance"})
    with pytest.raises(InvalidInput, match="kind is 'dance'; this version knows audit, check"):
        report_run(RunQuery(run="dance-1"), owner)


def test_a_comparison_is_what_the_job_printed_last(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {**FOUND, "differences": [{"measure": "right", "flips": [], "sides": []}]}
    arguments = stand_in(tmp_path, monkeypatch, f"echo reading; echo '{json.dumps(found)}'")
    compared = compare_runs(CompareRuns(runs=("shop-1", "shop-2")), owner)
    _, _, *folders = arguments.read_text().splitlines()
    assert folders == [str(owner.runs / name) for name in ("shop-1", "shop-2")]
    assert compared.differences == ({"measure": "right", "flips": [], "sides": []},)
    assert "<title>2 runs compared</title>" in Path(compared.html).read_text()
    assert Path(compared.html).parent == owner.runs / ".sparring" / "reports"


def test_an_operator_sees_no_cases_and_gets_no_page(
    operator: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, f"echo '{json.dumps(FOUND)}'")
    found = compare_runs(CompareRuns(runs=("shop-1", "shop-2")), operator)
    assert found.differences == ({"measure": "right", "flips": [], "sides": []},)
    assert found.html == ""
    assert not (operator.runs / ".sparring" / "reports").exists()
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
    short = Comparison.model_validate(
        {name: FOUND[name] for name in Comparison.model_fields if name in FOUND}
    ).short()
    assert [name for name, _ in short.settings] == ["beta"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo Traceback >&2; echo 'no rollouts' >&2; exit 1", "comparison: no rollouts"),
        ("exit 1", "comparison: it failed without a message"),
        ("true", "comparison: it failed without a message"),
    ],
)
def test_a_job_that_fails_or_says_nothing_is_an_error(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    stand_in(tmp_path, monkeypatch, script)
    with pytest.raises(SparringError) as refused:
        compare_runs(CompareRuns(runs=("shop-1", "shop-2")), owner)
    assert str(refused.value) == message


def test_a_job_that_takes_too_long_is_ended(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(reporting, "_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(SparringError, match=r"comparison: not finished within 0\.05 s"):
        compare_runs(CompareRuns(runs=("shop-1", "shop-2")), owner)
