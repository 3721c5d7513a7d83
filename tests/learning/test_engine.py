"""The seam: every engine has the verbs of the protocol, with the parameters that a step passes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from sparring.contracts.errors import WorldSizeError
from sparring.engine.trainer import PolicyTrainer
from sparring.learning.engine import (
    ENGINES,
    Engine,
    EngineFigures,
    EngineModule,
    Launched,
    Parity,
    Scores,
    engine_named,
    from_rank_0,
    likely_cause,
)
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
    assert len(VERBS) <= 15


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


def test_another_number_of_processes_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Launched.here(2).world_size == 2
    with pytest.raises(
        WorldSizeError,
        match="4 processes were requested, but 2 started; start them with `sparring train --proc",
    ):
        Launched.here(4)


def test_only_rank_0_looks_and_every_rank_gets_what_it_found() -> None:
    sent: list[int] = []

    class Rank(NotebookEngine):
        def gather(self, mine: list[Any]) -> list[Any]:
            sent.extend(mine)
            return sent

    looked: list[int] = []

    def find_as(rank: int) -> int:
        def find() -> int:
            looked.append(rank)
            return 40 + rank

        return from_rank_0(find, Rank(rank=rank))

    assert [find_as(rank) for rank in range(3)] == [40, 40, 40]
    assert looked == [0]


@pytest.mark.parametrize("name", ENGINES)
def test_the_module_of_an_engine_has_the_functions_that_a_training_calls(name: str) -> None:
    module = engine_named(name)
    for function, wanted in vars(EngineModule).items():
        if inspect.isfunction(wanted) and function[0] != "_":
            given = list(inspect.signature(getattr(module, function)).parameters)
            assert ["self", *given] == list(inspect.signature(wanted).parameters), function


TRAINED = [-0.1, -2.0, -0.7, -3.1, -0.2, -1.4, -0.9, -0.05, -4.0, -1.1]


def test_float32_is_held_to_the_largest_gap():
    assert Parity(100, largest=9e-4, mean=1e-6, dtype="float32").holds
    assert not Parity(100, largest=2e-3, mean=1e-6, dtype="float32").holds


def test_bfloat16_is_held_to_the_mean():
    assert Parity(100, largest=0.25, mean=0.01, dtype="bfloat16").holds
    assert not Parity(100, largest=0.25, mean=0.1, dtype="bfloat16").holds


def test_a_parity_names_both_figures_and_the_limit():
    text = str(Parity(7, 0.3, 0.1, "float32"))
    assert "3.0e-01 at most and 1.0e-01 on average over 7 tokens" in text
    assert "limit 0.001 on the largest" in text


def test_another_temperature_is_recognised():
    at_one = [value * 1.7 for value in TRAINED]
    assert "temperature 1" in likely_cause(at_one, TRAINED, at_one)


def test_log_probabilities_of_the_wrong_positions_are_recognised():
    assert "shifted by one" in likely_cause([*TRAINED[1:], -5.0], TRAINED, [0.0] * 10)


def test_a_gap_without_a_known_pattern_names_weights_sampling_and_precision():
    other = [value - 0.4 for value in TRAINED]
    assert "not kept in sync" in likely_cause(other, TRAINED, TRAINED)
