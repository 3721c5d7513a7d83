"""A search of raw lines finds every record that matches, in any order of windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.rollouts import Message
from sparring.operations.rollout_filters import RecordFilter
from sparring.run_folder import line_search
from sparring.run_folder.files import dump_line
from sparring.run_folder.line_search import candidates, needle_of
from sparring.run_folder.records import to_record
from sparring.run_folder.rollout_log import RolloutWriter
from sparring.run_folder.sharded_log import ShardedLog
from tests.rollouts import rollout

TEXTS = ["alpha", "beta ALPHA", "gamma", "Äpfel and alpha", 'a "quoted" alpha', "delta"]


@pytest.fixture
def log(tmp_path: Path) -> ShardedLog:
    for rank in (0, 1):
        with RolloutWriter(tmp_path / f"rank-{rank}") as writer:
            for number, text in enumerate(TEXTS):
                said = (Message("user", text),)
                writer.append(rollout("x", id=f"c{number}", index=rank, messages=said), 1.0)
    return ShardedLog([tmp_path / "rank-0", tmp_path / "rank-1"])


def found(log: ShardedLog, text: str) -> list[int]:
    return [place for place, _ in candidates(log, [needle_of(text)], [range(12)])]


@pytest.mark.parametrize("size", [1, 700, 10**6])
def test_lines_are_found_whatever_the_window(
    log: ShardedLog, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_search, "WINDOW_BYTES", size)
    assert found(log, "alpha") == [0, 1, 3, 4, 6, 7, 9, 10]
    assert found(log, '"QUOTED"') == [4, 10]
    assert found(log, "äpfel AND") == [3, 9]
    assert found(log, "nothing") == []


def test_a_page_reads_a_bounded_part(log: ShardedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_search, "WINDOW_BYTES", 1)
    monkeypatch.setattr(line_search, "MAX_BYTES", 1)
    assert list(candidates(log, [b"alpha"], [range(12)])) == [(0, True), (1, False)]


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
    condition = RecordFilter(text=wanted)
    if condition.matches(record):
        assert all(needle in line for needle in condition.needles())
