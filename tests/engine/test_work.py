"""The work of a training run: its validation cases and its trial round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring import Suite
from sparring.contracts.cases import Split
from sparring.contracts.errors import SplitTooSmall
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings
from sparring.engine.loading import load
from sparring.engine.work import TrainWork
from tests.training import TALKATIVE, talk


def settings(**fields: Any) -> TrainSettings:
    return TrainSettings(device="cpu", max_steps=2, max_completion_length=16, **fields)


@pytest.fixture(scope="module")
def work(tiny_folder: Path) -> TrainWork:
    loaded = load(PolicySpec(model=str(tiny_folder)), settings(), declared=TALKATIVE)
    return TrainWork(talk(), settings(), loaded)


@pytest.mark.parametrize(("wanted", "played"), [(None, 24), (5, 5), (1000, 24), (0, 0)])
def test_as_many_cases_are_validated_as_are_wanted_and_there(
    work: TrainWork, wanted: int | None, played: int
) -> None:
    assert work.suite.size(Split.VALIDATION) == 24
    assert replace(work, settings=settings(validation_cases=wanted)).validation_cases() == played


def test_a_small_validation_split_is_refused_only_where_cases_are_wanted(work: TrainWork) -> None:
    few = Suite.from_records(
        [{"input": f"q {n}", "split": "validation" if n < 2 else "training"} for n in range(80)]
    )
    assert replace(work, task=replace(talk(), suite=few)).validation_cases() == 0
    with pytest.raises(SplitTooSmall, match="validation"):
        replace(
            work, task=replace(talk(), suite=few), settings=settings(validation_cases=2)
        ).validation_cases()


def test_a_trial_finds_prompts_that_leave_no_room_for_an_answer(work: TrainWork) -> None:
    assert work.trial_problems() == []
    greedy = replace(work, settings=settings().model_copy(update={"max_completion_length": 10**6}))
    (problem,) = greedy.trial_problems()
    assert "max_completion_length is 1,000,000, but the model has" in problem
    assert replace(greedy, rollout_function=lambda *_: None).trial_problems() == []  # type: ignore[arg-type, return-value]
