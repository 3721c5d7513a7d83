"""Runs of every kind, as this format writes them, are read.

`samples/` holds the parts that last of runs of `sparring eval|audit|train|prove|ship|check`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparring.operations.activity import VerifyActivity, verify_activity
from sparring.operations.operation import Caller, Role
from sparring.operations.reporting import report_run
from sparring.operations.rollouts import ListRollouts, ShowRollout, list_rollouts, show_rollout
from sparring.operations.run_views import ListRuns, ResultsQuery, RunQuery
from sparring.operations.runs import list_runs, run_results, show_run
from sparring.run_folder import RunFolder
from sparring.run_folder.held_out_ledger import runs_that_looked

SAMPLES = Path(__file__).parent / "samples"
PROOF = "proof-bell-20261116-184334-e4fc"
STOPPED = "bell-20261116-184635-3ab8"
KINDS = {
    "audit-bell-20261116-184545-5817": "audit",
    "bell-20261116-184053-77fe": "eval",
    "bell-20261116-184334-e4fc": "train",
    "check-bell-20261116-184209-e42b": "check",
    PROOF: "prove",
    "ship-bell-20261116-091000-f21e": "ship",
}


@pytest.fixture
def owner(tmp_path: Path) -> Caller:
    """The samples, in a project at another place."""
    project = tmp_path / "porter"
    shutil.copytree(SAMPLES, project)
    return Caller(Role.OWNER, project / "runs", "owner", folder=project)


def test_runs_are_listed_with_kind_and_state(owner: Caller) -> None:
    listed = {line.run: (line.kind, line.state) for line in list_runs(ListRuns(), owner).runs}
    assert listed.pop(STOPPED) == ("train", "stopped")
    assert listed == {run: (kind, "completed") for run, kind in KINDS.items()}


@pytest.mark.parametrize(("run", "kind"), KINDS.items())
def test_a_run_is_shown_with_results_and_rollouts(run: str, kind: str, owner: Caller) -> None:
    assert show_run(RunQuery(run=run), owner).environment == "bell"
    assert run_results(ResultsQuery(run=run), owner).kind == kind
    first, *_ = list_rollouts(ListRollouts(run=run), owner).rollouts
    rollout = show_rollout(ShowRollout(run=run, rollout=first.id), owner)
    assert rollout.record["judgements"]


def test_a_report_is_written_again(owner: Caller) -> None:
    assert Path(report_run(RunQuery(run=PROOF), owner).html).stat().st_size > 10_000


def test_looks_at_held_out_cases_count(owner: Caller) -> None:
    cases = "2ab9a05690882383a43b11bfff83ab268a8c4f164996cd60a2f226b584e1c87b"
    assert PROOF in runs_that_looked(RunFolder(owner.runs / PROOF), cases)


def test_the_activity_log_is_intact(owner: Caller) -> None:
    assert verify_activity(VerifyActivity(), owner).ok
