"""The table of kinds: everything it names exists, and a new kind is one entry."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from sparring.contracts import kinds
from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import (
    KINDS,
    AuditSpec,
    CheckSpec,
    Form,
    ProveSpec,
    RunKind,
    ShipSpec,
    run_kind,
)
from sparring.contracts.specs import EndpointSpec, RunSpec
from sparring.contracts.summaries import Summary
from sparring.contracts.training import TrainSettings
from sparring.jobs.run_job import Attempt, Job, job_of, run_job
from sparring.jobs.worker import Heartbeat
from sparring.operations.operation import Caller, Role
from sparring.operations.run_views import ListRuns, RunQuery
from sparring.operations.runs import list_runs, show_run
from sparring.operations.starting import new_name
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec
from sparring.run_folder.events import append_state
from sparring.runs.lifecycle import RunState
from sparring.surfaces.cli.kind_views import view_of

SPEC = ShipSpec(target="x.py:X", run="r", to="/tmp/x")
OTHER = EndpointSpec(base_url="http://localhost/v1", model="large")


def test_rollouts_of_all_players_are_counted() -> None:
    assert SPEC.max_rollouts == 200 * 3 + 5 * 24
    assert SPEC.model_copy(update={"cases": None}).max_rollouts is None


def test_unknown_forms_and_margins_are_refused() -> None:
    for wrong in ({"forms": ("zip",)}, {"margin": 0.0}, {"rollouts": 0}):
        with pytest.raises(ValidationError):
            ShipSpec(target="x.py:X", run="r", to="x", **wrong)
    assert [form.value for form in Form] == ["adapter", "merged", "gguf", "ollama"]


def check_of(**fields: Any) -> CheckSpec:
    small = TrainSettings(
        cases_per_batch=3,
        gradient_accumulation_steps=1,
        num_generations=5,
        replacement_groups=1,
    )
    given = {"cases": 7, "rollouts": 2, "dry_steps": 0, "settings": small, **fields}
    return CheckSpec.model_validate({"target": "x.py:X", **given})


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, 7 * 2 + 5),
        ({"others": (OTHER, OTHER), "other_cases": 3}, 7 * 2 + 2 * 3 * 2 + 5),
        ({"dry_steps": 2}, 7 * 2 + 5 + (2 + 1) * (3 + 1) * 5),
        ({"dry_steps": 2, "processes": 2, "nodes": 3}, 7 * 2 + 5 + (2 + 1) * (3 + 1) * 5),
    ],
)
def test_a_check_counts_every_model_the_timed_group_and_the_dry_steps(
    fields: dict[str, Any], most: int
) -> None:
    assert check_of(**fields).max_rollouts == most


def test_the_optimizer_steps_of_a_check_are_its_dry_steps() -> None:
    assert check_of(dry_steps=3).optimizer_steps == 3
    assert check_of(processes=2, nodes=4).world_size == 8


def test_a_proof_counts_both_models_and_is_unlimited_without_a_number_of_cases() -> None:
    proof = ProveSpec(target="x.py:X", run="r", rollouts=3)
    assert proof.max_rollouts is None
    assert proof.model_copy(update={"cases": 10}).max_rollouts == 2 * 3 * 10


def test_a_proof_on_training_cases_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"training cases prove nothing.*use held-out or"):
        ProveSpec(target="x.py:X", run="r", split=Split.TRAINING)
    assert ProveSpec(target="x.py:X", run="r").split is Split.HELD_OUT
    assert ProveSpec(target="x.py:X", run="r", split=Split.VALIDATION).split is Split.VALIDATION


def test_an_audit_plays_no_rollout_of_a_model_and_takes_no_step() -> None:
    audit = AuditSpec(target="x.py:X")
    assert (audit.max_rollouts, audit.optimizer_steps) == (0, 0)


@pytest.mark.parametrize(
    "spec", [AuditSpec(target="x.py:X"), check_of(others=(OTHER,)), ProveSpec(target="t", run="r")]
)
def test_a_spec_survives_being_written_and_read(spec: AuditSpec | CheckSpec | ProveSpec) -> None:
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec


def test_a_group_of_one_case_is_too_small_to_be_checked_or_audited() -> None:
    for kind in (AuditSpec, CheckSpec):
        with pytest.raises(ValidationError, match=r"cases\n.*greater than or equal to 2"):
            kind.model_validate({"target": "x.py:X", "cases": 1})


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_entry_names_a_spec_a_summary_a_job_and_a_view_that_exist(kind: RunKind) -> None:
    assert kind.spec.model_fields["kind"].default == kind.name
    assert kind.summary.model_fields["kind"].default == kind.name
    assert callable(job_of(kind.name))
    assert view_of(kind.name).parts


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
