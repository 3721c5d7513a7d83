"""Limits of play."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from sparring.contracts.limits import Limits


@pytest.mark.parametrize(("rounds", "turns"), [(0, 1), (5, 6)])
def test_the_model_may_answer_once_after_its_last_tool_round(rounds: int, turns: int) -> None:
    assert Limits(tool_rounds=rounds).turns == turns


def test_limits_by_tool_are_not_shared_and_no_limit_can_be_changed() -> None:
    assert Limits().tool_concurrency_by_name is not Limits().tool_concurrency_by_name
    with pytest.raises(FrozenInstanceError):
        Limits().tool_rounds = 9  # type: ignore[misc]
