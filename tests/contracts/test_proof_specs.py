"""Specs of checks, audits and proofs: what they may cost, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sparring.contracts.cases import Split
from sparring.contracts.proof_specs import AuditSpec, CheckSpec, ProveSpec
from sparring.contracts.specs import EndpointSpec
from sparring.contracts.training import TrainSettings

OTHER = EndpointSpec(base_url="http://localhost/v1", model="large")


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
