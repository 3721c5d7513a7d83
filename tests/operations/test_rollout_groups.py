"""A group holds all rollouts of a case in a step, in the order of their index."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput, NotPermitted
from sparring.operations.operation import Caller, Role
from sparring.operations.rollout_groups import show_group
from sparring.operations.rollouts import ShowRollout
from tests.surfaces.web.viewed import SECRET, TRAINING, make_secret, make_training, owner_in


def test_siblings_are_found_from_any_of_them(tmp_path: Path) -> None:
    make_training(tmp_path / "runs", steps=3, group=5)
    for index in range(5):
        asked = ShowRollout(run=TRAINING, rollout=f"lamps.1.{index}")
        group = show_group(asked, owner_in(tmp_path))
        assert [each.record["id"] for each in group.rollouts] == [f"lamps.1.{n}" for n in range(5)]
        assert [each.position for each in group.rollouts] == [5, 6, 7, 8, 9]
        assert (group.case, group.step) == ("lamps", 1)
        assert "rows" not in group.rollouts[0].record


def test_a_missing_rollout_and_held_out_cases_are_refused(tmp_path: Path) -> None:
    make_training(tmp_path / "runs")
    make_secret(tmp_path / "runs")
    with pytest.raises(InvalidInput, match=r"no rollout 'lamps\.99\.0'"):
        show_group(ShowRollout(run=TRAINING, rollout="lamps.99.0"), owner_in(tmp_path))
    agent = Caller(Role.OPERATOR, tmp_path / "runs", "agent", folder=tmp_path)
    with pytest.raises(NotPermitted):
        show_group(ShowRollout(run=SECRET, rollout="plum.0.0"), agent)
