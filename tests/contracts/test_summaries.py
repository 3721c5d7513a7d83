"""A summary knows whether its run did what its command requested, and which JSON it was."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sparring.contracts.summaries import (
    ArtefactRow,
    AuditSummary,
    CheckSummary,
    Equivalence,
    EvalSummary,
    ProveSummary,
    ShipSummary,
    Summary,
)
from tests.summaries import complete

ROW = {"before": 0.1, "after": 0.5, "value": 0.4}


@pytest.mark.parametrize(
    ("kind", "given", "has_passed"),
    [
        (EvalSummary, {"reward": 0.0}, True),
        (CheckSummary, {"verdict": "learnable"}, True),
        (CheckSummary, {"verdict": "too hard"}, False),
        (AuditSummary, {"audit": [{"is_grave": False}]}, True),
        (AuditSummary, {"audit": [{"is_grave": True}]}, False),
        (ProveSummary, {"verdict": "better"}, True),
        (ProveSummary, {"verdict": "not shown"}, False),
        (ShipSummary, {"verdict": "equal", "is_fine": True}, True),
        (ShipSummary, {"verdict": "equal", "is_fine": False}, False),
    ],
)
def test_a_result_has_passed_if_its_command_ends_with_0(
    kind: type[Summary], given: dict[str, Any], has_passed: bool
) -> None:
    assert complete(kind, given).has_passed is has_passed


def test_the_differences_of_a_proof_begin_with_the_reward_and_end_with_the_second_suite() -> None:
    proof = complete(
        ProveSummary,
        {"reward": ROW, "measures": {"exact": ROW}, "also": ROW, "also_environment": "sums"},
    )
    assert list(proof.differences) == ["reward", "exact", "sums (second suite)"]
    assert complete(ProveSummary, {"measures": {}}).differences == {}


def test_json_has_the_fields_that_were_set_and_keeps_the_type_of_numbers() -> None:
    row = {"name": "q8", "size": 1, "learned": 0, "servers": {}}
    made = complete(ArtefactRow, row).as_json()
    assert made.items() >= row.items()
    assert not {"gap", "validation", "warning"} & set(made)
    assert isinstance(made["learned"], int)


def test_a_field_that_is_unknown_is_refused() -> None:
    with pytest.raises(ValidationError, match="charm"):
        complete(AuditSummary, {"charm": 1})


@pytest.mark.parametrize(
    ("given", "is_fine"),
    [
        ({"likeness": "equal"}, True),
        ({"likeness": "cannot tell"}, True),
        ({"likeness": "worse"}, False),
        ({"likeness": "equal", "missing": "20 of 40"}, False),
    ],
)
def test_a_file_is_fine_unless_it_is_worse_or_hardly_scored(
    given: dict[str, Any], is_fine: bool
) -> None:
    assert complete(Equivalence, given).is_fine is is_fine


def test_a_file_names_all_servers_that_played_it() -> None:
    row = {"server": "transformers", "servers": {"vLLM": {"likeness": "equal"}}}
    assert complete(ArtefactRow, row).played_by == ["transformers", "vLLM"]
