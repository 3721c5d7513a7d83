"""The seam: every engine has the verbs of the protocol, with the parameters that a step passes."""

from __future__ import annotations

import inspect

import pytest

from sparring.engine.trainer import PolicyTrainer
from sparring.learning.engine import Engine, EngineFigures, Scores
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
