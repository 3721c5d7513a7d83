"""Who this process is among those that train together, and what it has from the others."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.contracts.errors import WorldSizeError
from sparring.engine import ranks
from sparring.engine.ranks import Launched, from_rank_0, gathered


def test_without_torchrun_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert Launched.here() == Launched(rank=0, world_size=1)


def test_torchrun_says_who_this_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    launched = Launched.here()
    assert launched == Launched(rank=3, world_size=4)
    assert (launched.place.rank, launched.place.world_size) == (3, 4)


def test_another_number_of_processes_is_refused_with_the_way_out() -> None:
    Launched(1, 2).require(2)
    with pytest.raises(
        WorldSizeError,
        match="4 processes were requested, but 2 started; start them with `sparring train --proc",
    ):
        Launched(1, 2).require(4)


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
