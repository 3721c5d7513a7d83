"""The spec of a shipment counts its rollouts, for budgets."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sparring.contracts.ship_specs import Form, ShipSpec

SPEC = ShipSpec(target="x.py:X", run="r", to="/tmp/x")


def test_rollouts_of_all_players_are_counted() -> None:
    assert SPEC.max_rollouts == 200 * 3 + 4 * 24
    assert SPEC.model_copy(update={"cases": None}).max_rollouts is None


def test_unknown_forms_and_margins_are_refused() -> None:
    for wrong in ({"forms": ("zip",)}, {"margin": 0.0}, {"rollouts": 0}):
        with pytest.raises(ValidationError):
            ShipSpec(target="x.py:X", run="r", to="x", **wrong)
    assert [form.value for form in Form] == ["adapter", "merged", "gguf", "ollama"]
