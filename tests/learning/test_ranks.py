"""Who this process is among those that train together."""

from __future__ import annotations

import pytest

from sparring.contracts.errors import WorldSizeError
from sparring.learning.ranks import Launched


def test_without_torchrun_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert Launched.here() == Launched(rank=0, world_size=1)


def test_torchrun_says_who_this_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert Launched.here() == Launched(rank=3, world_size=4)


def test_another_number_of_processes_is_refused_with_the_way_out() -> None:
    Launched(1, 2).require(2)
    with pytest.raises(
        WorldSizeError,
        match="4 processes were requested, but 2 started; start them with `sparring train --proc",
    ):
        Launched(1, 2).require(4)
