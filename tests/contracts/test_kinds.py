"""The table of kinds: everything it names exists, and a new kind is one entry."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, Literal

import pytest

from sparring.contracts import kinds
from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import KINDS, RunKind, run_kind
from sparring.contracts.specs import RunSpec
from sparring.contracts.summaries import Summary
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.run_job import Attempt, Job, job_of, run_job
from sparring.operations.operation import Caller, Role
from sparring.operations.run_views import ListRuns, RunQuery
from sparring.operations.runs import list_runs, show_run
from sparring.operations.starting import new_name
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec
from sparring.run_folder.events import append_state
from sparring.runs.lifecycle import RunState
from sparring.surfaces.cli.kind_views import view_of


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_an_entry_names_exists(kind: RunKind) -> None:
    assert kind.spec.model_fields["kind"].default == kind.name
    assert kind.summary.model_fields["kind"].default == kind.name
    assert callable(job_of(kind.name))
    assert view_of(kind.name).show


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"spec\.json: kind is 'odd'; this version knows audit"):
        run_kind("odd", "spec.json")


class SweepSpec(RunSpec):
    kind: Literal["sweep"] = "sweep"


class SweepSummary(Summary):
    kind: Literal["sweep"] = "sweep"


class SweepJob(Job[SweepSummary]):
    def __init__(self, attempt: Attempt, spec: SweepSpec, task: Any) -> None:
        self._swept = SweepSummary(run=attempt.folder.id, environment=spec.environment)

    def run(self) -> SweepSummary:
        return self._swept


def test_a_new_kind_is_one_entry(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(
        KINDS["audit"], name="sweep", spec=SweepSpec, summary=SweepSummary, id_prefix="sweep-"
    )
    monkeypatch.setitem(sys.modules, "sparring.jobs.sweep.job", sys.modules[__name__])
    monkeypatch.setitem(kinds.KINDS, "sweep", entry)  # type: ignore[arg-type]
    spec = SweepSpec(target="x.py:X", environment="shop")
    folder = RunFolder(tmp_path / new_name(spec))
    folder.create(spec.model_dump(mode="json"))
    append_state(folder, RunState.QUEUED, author="test")
    assert folder.id.startswith("sweep-shop-")
    task: Any = object()
    ended = run_job(Attempt(folder, Heartbeat(folder, 0, None)), task)
    assert ended.summary == SweepSummary(run=folder.id, environment="shop")
    assert isinstance(read_run_spec(folder), SweepSpec)
    owner = Caller(Role.OWNER, tmp_path, "owner", folder=tmp_path)
    assert show_run(RunQuery(run=folder.id), owner).kind == "sweep"
    assert [each.kind for each in list_runs(ListRuns(kind="sweep"), owner).runs] == ["sweep"]
