"""The work of a training: its validation cases, its trial round, and what is built of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring import Suite
from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import SplitTooSmall, WorldSizeError
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings
from sparring.engine.opening import load
from sparring.learning.engine import Launched
from sparring.learning.reporting import Hooks
from sparring.learning.work import Built, TrainWork, build
from sparring.player import Play, Player
from sparring.player.function_player import FunctionPlayer
from sparring.run_folder import RunFolder
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


@pytest.fixture(scope="module")
def built(work: TrainWork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    made = build(RunFolder(tmp_path_factory.mktemp("run")), work, Launched(0, 1), Hooks())
    yield made
    made.collector.close()


def test_a_script_takes_the_place_of_the_model(work: TrainWork) -> None:
    player = work.scripted_player(lambda request: f"turn {request.key.turn}")
    play = Play(RolloutKey(0, 0, "c", 0), Case("c", "hello"))
    assert asyncio.run(player.play_one(play)).answer == "turn 0"


# ------------------------------------------------------------------ what is built


def test_the_policy_samples_with_the_weights_that_learn(built: Built) -> None:
    assert built.policy.model is built.engine.model  # type: ignore[attr-defined]


def test_the_plan_is_that_of_the_settings(built: Built) -> None:
    assert (built.plan.steps, built.plan.rollouts_per_case) == (2, 4)
    assert built.engine.args.max_steps == 2
    assert built.engine.args.per_device_train_batch_size == built.plan.rows_per_pass


def test_training_cases_are_proposed_by_their_ids(built: Built, work: TrainWork) -> None:
    assert list(built.engine.train_dataset["prompt"]) == work.suite.case_ids(Split.TRAINING)
    assert built.collector.has_validation


def test_prompts_that_are_computed_more_than_once_are_noted(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(built.engine, "why_prompts_are_not_shared", "")
    built.engine.prepare(built.prompt_tokens, notes.append)
    assert notes == []
    monkeypatch.setattr(built.engine, "why_prompts_are_not_shared", "it is sharded")
    built.engine.prepare(built.prompt_tokens, notes.append)
    assert notes == [
        "the update computes prompts once per rollout, not once per group: it is sharded"
    ]


def test_a_rollout_function_plays_in_place_of_the_agent(
    built: Built, work: TrainWork, tmp_path: Path
) -> None:
    assert isinstance(built.collector.player, Player)
    own = replace(work, rollout_function=lambda *_: None, settings=settings(validation_cases=0))  # type: ignore[arg-type, return-value]
    made = build(RunFolder(tmp_path), own, Launched(0, 1), Hooks())
    made.collector.close()
    assert isinstance(made.collector.player, FunctionPlayer)
    assert not made.collector.has_validation


def test_a_launch_that_accelerate_does_not_know_of_is_refused(
    work: TrainWork, tmp_path: Path
) -> None:
    with pytest.raises(WorldSizeError, match="2 processes were requested, but Accelerate runs 1"):
        build(RunFolder(tmp_path), work, Launched(0, 2), Hooks())


def test_building_leaves_the_log_of_trl_as_it_was(work: TrainWork, tmp_path: Path) -> None:
    log = logging.getLogger("trl")
    before = log.level
    log.setLevel(logging.INFO)
    try:
        made = build(RunFolder(tmp_path), work, Launched(0, 1), Hooks())
        made.collector.close()
        assert log.level == logging.INFO
    finally:
        log.setLevel(before)
