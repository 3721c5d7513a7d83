"""Runs that version 0.1 wrote, one of each kind, are read by this version.

`samples/` was written by `sparring check|train|prove|eval|audit measures` in /srv/porter.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparring.operations.activity.reading import VerifyActivity, verify_activity
from sparring.operations.operation import Caller, Role
from sparring.operations.reporting import report_run
from sparring.operations.rollouts import ListRollouts, ShowRollout, list_rollouts, show_rollout
from sparring.operations.run_control import ResumeRun, resume_run
from sparring.operations.run_views import ListRuns, ResultsQuery, RunQuery
from sparring.operations.runs import list_runs, run_results, show_run
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.held_out_ledger import count_candidates, runs_that_looked
from sparring.runs.lifecycle import RunState
from tests.supervised import ended

SAMPLES = Path(__file__).parent / "samples"
EVAL = "bell-20261116-184053-77fe"
CHECK = "check-bell-20261116-184209-e42b"
TRAIN = "bell-20261116-184334-e4fc"
PROOF = "proof-bell-20261116-184334-e4fc"
AUDIT = "audit-bell-20261116-184545-5817"
STOPPED = "bell-20261116-184635-3ab8"
KINDS = {EVAL: "eval", CHECK: "check", TRAIN: "train", PROOF: "prove", AUDIT: "audit"}


@pytest.fixture
def owner(tmp_path: Path) -> Caller:
    """The samples as they are, in a project at another place."""
    project = tmp_path / "porter"
    shutil.copytree(SAMPLES, project)
    for file in project.glob("runs/*-*/**/*"):
        if file.suffix in (".json", ".jsonl") and b"/srv/porter" in (text := file.read_bytes()):
            file.write_bytes(text.replace(b"/srv/porter", str(project).encode()))
    return Caller(Role.OWNER, project / "runs", "owner", folder=project)


def test_each_is_listed_with_its_kind_and_state(owner: Caller) -> None:
    listed = {line.run: (line.kind, line.state) for line in list_runs(ListRuns(), owner).runs}
    assert listed.pop(STOPPED) == ("train", "stopped")
    assert listed == {run: (kind, "completed") for run, kind in KINDS.items()}


@pytest.mark.parametrize("run", [*KINDS, STOPPED])
def test_each_is_shown_with_its_rollouts(run: str, owner: Caller) -> None:
    shown = show_run(RunQuery(run=run), owner)
    assert shown.environment == "bell"
    assert shown.kind in KINDS.values()
    page = list_rollouts(ListRollouts(run=run), owner)
    assert page.rollouts
    first = show_rollout(ShowRollout(run=run, rollout=page.rollouts[0].id), owner)
    assert first.record["judgements"]
    assert run_results(ResultsQuery(run=run), owner).kind in KINDS.values()


@pytest.mark.parametrize("run", [CHECK, TRAIN, PROOF])
def test_reports_are_written_again(run: str, owner: Caller) -> None:
    report = Path(report_run(RunQuery(run=run), owner).html)
    report.unlink()
    assert Path(report_run(RunQuery(run=run), owner).html).stat().st_size > 10_000


@pytest.mark.parametrize("run", KINDS)
def test_what_is_completed_stays_so(run: str, owner: Caller) -> None:
    assert resume_run(ResumeRun(run=run), owner).state == "completed"


def test_looks_at_held_out_cases_still_count(owner: Caller) -> None:
    cases = "2ab9a05690882383a43b11bfff83ab268a8c4f164996cd60a2f226b584e1c87b"
    folder = RunFolder(owner.runs / PROOF)
    assert runs_that_looked(folder, cases) == {PROOF}
    assert count_candidates(folder) == 1


def test_who_did_what_is_whole(owner: Caller) -> None:
    assert verify_activity(VerifyActivity(), owner).ok


@pytest.mark.slow
def test_a_training_that_was_begun_with_another_template_is_refused_by_name(owner: Caller) -> None:
    folder = RunFolder(owner.runs / STOPPED)
    resume_run(ResumeRun(run=STOPPED), owner)
    history = ended(folder)
    assert history.state is RunState.FAILED
    assert history.error == "RunChanged"
    assert "template" in history.message
    assert [each.step for each in list_checkpoints(folder.checkpoints)] == [6]
