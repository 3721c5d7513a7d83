from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from sparring.contracts.errors import MissingPackage, SettingError
from sparring.contracts.refused_settings import OURS
from sparring.contracts.training import TrainSettings
from sparring.engine.configuration import (
    check,
    grpo_config,
    lora_config,
    refuse_unknown,
    weights_dtype,
)
from sparring.learning.batches import resolve_batches


def config(**settings: Any) -> Any:
    made = TrainSettings(**settings)
    return grpo_config(made, resolve_batches(made, training_cases=1000), Path("out"))


# Requirement A6: its defaults, and where each setting arrives when it is set.
A6: list[tuple[str, Any, Any, str, Any]] = [
    ("max_steps", None, 7, "max_steps", 7),
    ("cases_per_batch", 2, 3, "per_device_train_batch_size", 12),
    ("gradient_accumulation_steps", 2, 5, "gradient_accumulation_steps", 5),
    ("learning_rate", None, 2e-6, "learning_rate", 2e-6),
    ("max_grad_norm", 1.0, 0.5, "max_grad_norm", 0.5),
    ("num_generations", 4, 8, "num_generations", 8),
    ("max_completion_length", 1024, 77, "max_completion_length", 77),
    ("temperature", 0.8, 1.1, "temperature", 1.1),
    ("gradient_checkpointing", False, True, "gradient_checkpointing", True),
    ("dtype", "auto", "bfloat16", "bf16", True),
    ("seed", 0, 5, "seed", 5),
    ("logging_steps", 1, 3, "logging_steps", 3),
    ("device", None, "cpu", "use_cpu", True),
    ("beta", 0.0, 0.04, "beta", 0.04),
    ("per_device_train_batch_size", None, 4, "per_device_train_batch_size", 4),
]


@pytest.mark.parametrize(("name", "default", "value", "field", "arrives"), A6)
def test_a_setting_has_its_default_and_arrives_in_trl(name, default, value, field, arrives):
    assert getattr(TrainSettings(), name) == default
    assert getattr(config(**{name: value}), field) == arrives


def test_an_epoch_is_one_pass_over_the_cases():
    assert TrainSettings().num_train_epochs == 1.0
    assert config(num_train_epochs=2).max_steps == 2 * config().max_steps == 500


def test_settings_that_trl_lacks_have_the_documented_defaults():
    settings = TrainSettings()
    assert settings.mask_truncated_completions is True
    assert settings.max_turns == 6
    assert settings.lora is False
    assert settings.quantization is False
    assert settings.report_to == ()


def test_learning_rates_by_default_are_those_of_full_and_of_adapter_training():
    assert config().learning_rate == 1e-5
    assert config(lora=True).learning_rate == 1e-4


def test_lora_has_the_documented_defaults_and_accepts_pefts_fields():
    lora = lora_config(TrainSettings(lora=True))
    assert (lora.r, lora.lora_alpha, lora.lora_dropout) == (16, 32, 0.0)
    assert lora.target_modules == "all-linear"
    assert lora_config(TrainSettings(lora={"r": 4, "use_rslora": True})).use_rslora


def test_a_four_bit_base_implies_adapters_and_needs_bitsandbytes():
    assert TrainSettings(quantization=True).adapters == {}
    if find_spec("bitsandbytes") is None:
        with pytest.raises(MissingPackage, match="pip install bitsandbytes"):
            check(TrainSettings(quantization=True))


def test_one_tracker_may_be_named_without_a_list():
    assert TrainSettings(report_to="tensorboard").report_to == ("tensorboard",)
    assert TrainSettings(report_to="none").report_to == ()


def test_trl_masks_nothing_itself_for_it_would_silence_attention():
    assert config(mask_truncated_completions=True).mask_truncated_completions is False


def test_weights_that_are_trained_whole_stay_in_float32():
    assert weights_dtype(TrainSettings(dtype="bfloat16")) is torch.float32
    assert weights_dtype(TrainSettings(dtype="bfloat16", lora=True)) is torch.bfloat16


def test_a_generation_of_more_cases_than_there_are_is_refused():
    settings = TrainSettings(engine={"steps_per_generation": 12})
    with pytest.raises(SettingError, match="a generation takes 24 cases, but there are 20"):
        check(settings, training_cases=20)


def test_the_engine_table_reaches_trl():
    assert config(engine={"loss_type": "dr_grpo", "num_iterations": 2}).loss_type == "dr_grpo"


@pytest.mark.parametrize(
    "name", sorted(set(OURS) - {"tools", "rollout_func", "environment_factory"})
)
def test_a_field_that_is_ours_is_refused_in_the_engine_table_with_the_name_to_use(name):
    with pytest.raises(SettingError, match=f"engine.{name}: "):
        check(TrainSettings(engine={name: 1}))


@pytest.mark.parametrize(
    ("table", "advice"),
    [
        ({"engine": {"save_safetensors": True}}, "instead of the engine"),
        ({"engine": {"learning_rate": 1e-4}}, "a setting of Sparring"),
        ({"engine": {"los_type": "grpo"}}, "did you mean engine.loss_type"),
        ({"engine": {"vllm_mode": "server"}}, "use sampling=1"),
        ({"lora": {"rr": 4}}, "lora.rr: there is no such setting"),
        ({"report_to": "tensorbord"}, "no tracker tensorbord"),
        ({"engine": {"num_iterations": "x"}}, "engine.num_iterations: .*integer"),
        ({"engine": {"weight_decay": "much"}}, "engine.weight_decay: .*number"),
    ],
)
def test_an_unknown_setting_value_is_refused_with_the_valid_ones(table, advice):
    with pytest.raises((SettingError, ValueError), match=advice):
        check(TrainSettings(**table))


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("checkpoint_steps", "use save_steps"),
        ("vllm", "use sampling=1, which starts a vLLM server"),
        ("enable_jit_checkpoint", "within a generation"),
        ("loss_type", r"write engine=\{'loss_type'"),
        ("learning_rat", "did you mean learning_rate"),
    ],
)
def test_an_unknown_setting_is_refused_with_what_to_do(name, advice):
    with pytest.raises(SettingError, match=advice):
        refuse_unknown([name])
