"""The seam: every engine has the verbs of the protocol, with the parameters that a step passes."""

from __future__ import annotations

import inspect

import pytest

from sparring.contracts.errors import WorldSizeError
from sparring.engine.trainer import PolicyTrainer
from sparring.learning.engine import Engine, EngineFigures, Launched, Scores
from tests.learning.notebook_engine import NotebookEngine

VERBS = [
    name for name, value in vars(Engine).items() if inspect.isfunction(value) and name[0] != "_"
]


@pytest.mark.parametrize("engine", [PolicyTrainer, NotebookEngine])
@pytest.mark.parametrize("verb", [*VERBS, "gather"])
def test_an_engine_takes_what_a_step_passes(engine: type, verb: str) -> None:
    wanted = inspect.signature(getattr(Engine, verb)).parameters
    assert list(inspect.signature(getattr(engine, verb)).parameters) == list(wanted)


def test_the_protocol_is_small() -> None:
    assert len(VERBS) <= 13


def test_an_engine_may_score_without_gaps_and_count_nothing() -> None:
    assert (Scores().gaps, Scores().parity) == (None, None)
    assert (dict(EngineFigures().means), dict(EngineFigures().sums)) == ({}, {})


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
