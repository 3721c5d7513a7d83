"""The logs of several ranks and players read as one, in a fixed order."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.run_folder.rollout_log import RolloutWriter
from sparring.run_folder.sharded_log import ShardedLog
from tests.rollouts import rollout


@pytest.fixture
def log(tmp_path: Path) -> ShardedLog:
    folders = [tmp_path / name for name in ("rank-0", "rank-1", "base")]
    for number, folder in enumerate(folders):
        with RolloutWriter(folder) as writer:
            for place in range(3):
                writer.append(rollout("answer", id=f"case{number}{place}"), 1.0)
    return ShardedLog(folders)


def test_a_range_crosses_from_log_to_log(log: ShardedLog) -> None:
    ids = [record["id"] for record in log.records(1, 8)]
    assert ids == [
        *("case01.0.0", "case02.0.0"),
        *("case10.0.0", "case11.0.0", "case12.0.0"),
        *("base/case20.0.0", "base/case21.0.0"),
    ]
    assert len(log) == 9
    assert len(list(log.entries(1, 8))) == 7


def test_an_id_is_found_with_its_position(log: ShardedLog) -> None:
    assert log.position("case11.0.0") == 4
    assert log.position("base/case22.0.0") == 8
    assert log.position("base/case11.0.0") is None
    assert log.find("base/case20.0.0")["case"]["id"] == "case20"
    with pytest.raises(InvalidInput, match="sparring rollout list"):
        log.find("nothing.0.0")


def test_a_step_has_one_range_in_each_log(log: ShardedLog) -> None:
    assert log.steps(0, 0) == [range(3), range(3, 6), range(6, 9)]
    assert log.steps(1, 5) == []


def test_a_player_has_one_range_of_positions(log: ShardedLog) -> None:
    assert log.positions_of("base") == range(6, 9)
    with pytest.raises(InvalidInput, match="no player 'trained'; it has base"):
        log.positions_of("trained")
