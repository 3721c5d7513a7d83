"""Declaring measures."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from sparring.contracts.errors import MeasureError
from sparring.contracts.verdicts import failed, passed
from sparring.measures.declaration import Measure, measure
from tests.rollouts import rollout


def polite(rollout: Any) -> Any:
    return passed("please") if "please" in rollout.answer else failed("no please")


def test_a_function_becomes_a_measure_of_its_own_name_that_can_be_called() -> None:
    declared = measure(polite)
    assert declared == Measure("polite", polite)
    assert declared(rollout("please")) == passed("please")
    assert declared(rollout("now")) == failed("no please")


def test_an_async_function_is_a_measure_that_is_awaited() -> None:
    @measure
    async def kind(rollout: Any) -> Any:
        return passed("kind")

    result: Any = kind(rollout("x"))
    assert inspect.isawaitable(result)
    assert asyncio.run(result) == passed("kind")  # type: ignore[arg-type]


def test_every_option_is_kept() -> None:
    declared = measure(
        name="manners", threshold=0.7, range=(1, 5), seconds=2.5, side_condition=True
    )(polite)
    assert declared == Measure(
        name="manners",
        judge=polite,
        threshold=0.7,
        low=1,
        high=5,
        seconds=2.5,
        is_side_condition=True,
    )


@pytest.mark.parametrize(
    "judge", [lambda: True, lambda rollout, extra: True, lambda rollout, extra=1: True]
)
def test_a_measure_must_take_the_rollout_alone(judge: Any) -> None:
    with pytest.raises(MeasureError, match="must take one argument, the rollout"):
        measure(judge)


@pytest.mark.parametrize("ends", [(1.0, 1.0), (1.0, 0.0), (0.0, float("nan"))])
def test_a_range_without_an_inside_is_refused_by_the_name_of_the_measure(
    ends: tuple[float, float],
) -> None:
    with pytest.raises(MeasureError, match="measure polite: the upper end of the range"):
        measure(range=ends)(polite)
