"""Rollouts are read back as they were logged."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.jobs.rollout_reading import read_rollouts
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutWriter
from tests.proofs.made import answered

PLAYED = {
    "base": [answered("a", 0.0), answered("b", 1.0), answered("a", None, 1)],
    "trained": [answered("a", 1.0, answer="better")],
}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "proof")
    for player, rollouts in PLAYED.items():
        with RolloutWriter(made.rollouts_of(player)) as writer:
            for each in rollouts:
                writer.append(each, 0.1)
    return made


def test_all_logs_are_read_in_order_and_those_that_do_not_exist_are_empty(
    folder: RunFolder,
) -> None:
    places = [folder.rollouts_of(player) for player in ("trained", "nobody", "base")]
    assert read_rollouts(places) == [*PLAYED["trained"], *PLAYED["base"]]
    assert read_rollouts([folder.rollouts_of("nobody")]) == []
