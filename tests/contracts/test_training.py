"""The spec of a training run: shorthand values, defaults that depend on others, and its size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sparring.contracts.specs import Supervision
from sparring.contracts.training import TrainSettings, TrainSpec, WarmStart


def settings_of(**fields: Any) -> TrainSettings:
    return TrainSettings.model_validate(fields)


def spec_of(**fields: Any) -> TrainSpec:
    return TrainSpec.model_validate({"target": "x.py:X", **fields})


@pytest.mark.parametrize(
    ("written", "trackers"),
    [("wandb", ("wandb",)), (["wandb", "none", "mlflow"], ("wandb", "mlflow")), ("none", ()),
     (None, ()), ([], ())],
)  # fmt: skip
def test_trackers_are_named_alone_or_in_a_list_and_none_is_none(
    written: Any, trackers: tuple[str, ...]
) -> None:
    assert settings_of(report_to=written).report_to == trackers


def test_trackers_of_another_type_are_refused() -> None:
    with pytest.raises(ValidationError, match="report_to"):
        settings_of(report_to=3)


def test_a_warm_start_can_be_named_by_its_source_alone() -> None:
    assert settings_of(warm_start="good.jsonl").warm_start == WarmStart(source="good.jsonl")
    with pytest.raises(ValidationError, match=r"warm_start\.source"):
        settings_of(warm_start="")


@pytest.mark.parametrize(
    ("fields", "adapters", "rate"),
    [
        ({}, None, 1e-5),
        ({"lora": True}, {}, 1e-4),
        ({"lora": {}}, {}, 1e-4),
        ({"lora": {"r": 4}}, {"r": 4}, 1e-4),
        ({"quantization": True}, {}, 1e-4),
        ({"quantization": {"bits": 4}, "lora": {"r": 4}}, {"r": 4}, 1e-4),
        ({"lora": True, "learning_rate": 3e-3}, {}, 3e-3),
        ({"learning_rate": 3e-3}, None, 3e-3),
    ],
)
def test_quantization_implies_adapters_and_adapters_learn_faster_unless_a_rate_is_set(
    fields: dict[str, Any], adapters: dict[str, Any] | None, rate: float
) -> None:
    settings = settings_of(**fields)
    assert (settings.adapters, settings.rate) == (adapters, rate)


def test_tool_results_are_learned_only_with_a_coefficient() -> None:
    assert not settings_of().learns_results
    assert settings_of(world_model_coefficient=0.05).learns_results


small = st.integers(1, 6)


@settings(max_examples=30)
@given(small, small, st.integers(2, 6), small, small)
def test_a_step_learns_from_every_rollout_of_every_pass_on_every_rank(
    cases: int, passes: int, rollouts: int, ranks: int, steps: int
) -> None:
    learning = settings_of(
        cases_per_batch=cases, gradient_accumulation_steps=passes, num_generations=rollouts
    )
    assert learning.rollouts_per_step(ranks) == cases * passes * rollouts * ranks
    without = learning.model_copy(update={"replacement_groups": 0})
    assert without.most_learned_from(steps, ranks) == steps * learning.rollouts_per_step(ranks)
    assert learning.most_learned_from(steps, ranks) == 2 * without.most_learned_from(steps, ranks)


@pytest.mark.parametrize(
    ("cases", "steps", "most"),
    [(10, 0, 20), (10, 49, 20), (10, 50, 30), (10, 100, 40), (0, 100, 0), (None, 50, 3 * 64)],
)
def test_validation_is_played_at_the_start_at_checkpoints_and_at_the_end(
    cases: int | None, steps: int, most: int
) -> None:
    learning = settings_of(validation_cases=cases, checkpoint_steps=50)
    assert learning.most_validated(steps) == most


def test_a_training_without_max_steps_has_no_limit() -> None:
    assert (spec_of().optimizer_steps, spec_of().max_rollouts) == (None, None)


def test_the_most_rollouts_are_those_of_training_and_of_validation() -> None:
    learning = {
        "max_steps": 10,
        "cases_per_batch": 2,
        "gradient_accumulation_steps": 1,
        "num_generations": 4,
        "replacement_groups": 1,
        "validation_cases": 5,
        "checkpoint_steps": 5,
    }
    spec = spec_of(settings=learning, processes=3)
    assert spec.optimizer_steps == 10
    assert spec.max_rollouts == 10 * 3 * (2 + 1) * 4 + 5 * (2 + 2)


def test_several_hosts_need_an_address_unless_a_scheduler_places_them() -> None:
    with pytest.raises(ValidationError, match="several hosts need a rendezvous address"):
        spec_of(nodes=2)
    assert spec_of(nodes=2, rendezvous="host:29500").world_size == 2
    assert spec_of(nodes=2, processes=4, supervision=Supervision(launcher="slurm")).world_size == 8


@pytest.mark.parametrize(
    ("given", "rollouts"),
    [
        ({}, 64),
        ({"sampling": 2}, 512),
        ({"sampling": "joined"}, 256),
        ({"sampling": ["http://a:1", "http://b:1", "http://c:1"]}, 768),
        ({"sampling": 2, "in_flight": 8}, 8),
    ],
)
def test_as_many_rollouts_are_in_play_as_the_servers_take(
    given: dict[str, Any], rollouts: int
) -> None:
    settings = TrainSettings(**given)
    assert settings.rollouts_at_once == settings.limits().in_flight == rollouts


def test_a_training_survives_being_written_and_read() -> None:
    spec = spec_of(
        settings={
            "lora": {"r": 8},
            "warm_start": "a",
            "guards": {"entropy": "off"},
        }
    )
    assert TrainSpec.model_validate_json(spec.model_dump_json()) == spec
