"""What the processes that train together have from each other."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.engine import ranks
from sparring.engine.ranks import from_rank_0, gathered
from sparring.learning.engine import Launched


def test_a_single_process_finds_for_itself() -> None:
    assert from_rank_0(lambda: "found", Launched(0, 1)) == "found"


def test_only_rank_0_looks_and_every_rank_gets_what_it_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Any] = []

    def broadcast(values: list[Any]) -> None:
        """What Accelerate does: fills the list of the others with that of rank 0."""
        if values != [None]:
            sent.extend(values)
        values[:] = sent

    monkeypatch.setattr(ranks, "broadcast_object_list", broadcast)
    looked: list[int] = []

    def find_as(rank: int) -> int:
        def find() -> int:
            looked.append(rank)
            return 40 + rank

        return from_rank_0(find, Launched(rank, 3))

    assert [find_as(rank) for rank in range(3)] == [40, 40, 40]
    assert looked == [0]


def test_the_lists_of_all_ranks_of_one_process_are_its_own() -> None:
    assert gathered([1, "two", None]) == [1, "two", None]
