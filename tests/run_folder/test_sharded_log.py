"""The logs of several ranks and players read as one, in a fixed order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Message
from sparring.operations.rollouts import ListRollouts
from sparring.run_folder import RunFolder, sharded_log
from sparring.run_folder.files import dump_line
from sparring.run_folder.records import to_record
from sparring.run_folder.rollout_log import RolloutWriter
from sparring.run_folder.sharded_log import (
    ShardedLog,
    candidates,
    needle_of,
    read_rollouts,
)
from tests.proofs.made import answered
from tests.rollouts import rollout

TEXTS = ["alpha", "beta ALPHA", "gamma", "Äpfel and alpha", 'a "quoted" alpha', "delta"]
PLAYED = {
    "base": [answered("a", 0.0), answered("b", 1.0), answered("a", None, 1)],
    "trained": [answered("a", 1.0, answer="better")],
}


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


@pytest.fixture
def texts(tmp_path: Path) -> ShardedLog:
    for rank in (0, 1):
        with RolloutWriter(tmp_path / f"rank-{rank}") as writer:
            for number, text in enumerate(TEXTS):
                messages = (Message("user", text),)
                writer.append(rollout("x", id=f"c{number}", index=rank, messages=messages), 1.0)
    return ShardedLog([tmp_path / "rank-0", tmp_path / "rank-1"])


def found(texts: ShardedLog, text: str) -> list[int]:
    return [place for place, _ in candidates(texts, [needle_of(text)], [range(12)])]


@pytest.mark.parametrize("size", [1, 700, 10**6])
def test_lines_are_found_whatever_the_window(
    texts: ShardedLog, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded_log, "WINDOW_BYTES", size)
    assert found(texts, "alpha") == [0, 1, 3, 4, 6, 7, 9, 10]
    assert found(texts, '"QUOTED"') == [4, 10]
    assert found(texts, "äpfel AND") == [3, 9]
    assert found(texts, "nothing") == []


def test_a_page_reads_a_bounded_part(texts: ShardedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_log, "WINDOW_BYTES", 1)
    monkeypatch.setattr(sharded_log, "MAX_BYTES", 1)
    assert list(candidates(texts, [b"alpha"], [range(12)])) == [(0, True), (1, False)]


# Letters such as the Kelvin sign, which become ASCII in lower case, are not found by ASCII.
plain = st.text(max_size=30).filter(
    lambda text: (
        all(sign.isascii() or not sign.casefold().isascii() for sign in text)
        and not any(
            part.isascii() for sign in text if not sign.isascii() for part in sign.casefold()
        )
    )
)


@given(text=plain, wanted=st.text(min_size=1, max_size=4))
def test_no_match_is_missed(text: str, wanted: str) -> None:
    record = to_record(rollout("x", messages=(Message("user", text),)))
    line = dump_line(record).lower()
    condition = ListRollouts(run="shop-1", text=wanted)
    if condition.matches(record):
        assert all(needle in line for needle in condition.needles())


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
