"""Translates settings into configurations of TRL, PEFT and bitsandbytes, and refuses invalid ones.

A field that Sparring sets itself, or that would have no effect, is refused with the setting to use
instead. An unknown field is refused with the most similar known field.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import typing
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError

from sparring.contracts.errors import MissingPackage, SettingError
from sparring.contracts.refused_settings import (
    OURS,
    engine_problem,
    field_problem,
    is_never_the_engines,
    unknown_field,
)
from sparring.contracts.specs import Table
from sparring.contracts.training import TrainSettings
from sparring.installed import how_to_install
from sparring.learning.batches import BatchPlan, resolve_batches
from sparring.learning.credit.group_relative import scale_of
from sparring.player.sdk_run import RUNNER_ARGUMENTS
from sparring.trackers import known_trackers

_MANY_CASES = 1 << 30
_COLLECTIVE_TIMEOUT = 6 * 3600  # seconds; ranks wait for the slowest tool of the slowest rank
_SET_BELOW = ("steps_per_generation", "ddp_timeout")
_ANY_TYPE = ConfigDict(arbitrary_types_allowed=True)
_LOSSES_BY_TOKEN = ("dapo", "cispo")
_BY_ROW_OR_PASS = (
    "off_policy_mask_threshold",
    "entropy_coef",
    "use_adaptive_entropy",
    "router_aux_loss_coef",
    "log_completions",
)
_LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "target_modules": "all-linear"}
_FOUR_BITS = {
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
}


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise SettingError for names that `TrainSettings` does not have, with the names to use."""
    known = set(TrainSettings.model_fields)
    problems = [_advice(name, known) for name in names if name not in known]
    if problems:
        raise SettingError("; ".join(problems))


def plan_of(settings: TrainSettings, training_cases: int, world_size: int) -> BatchPlan:
    """Return the batch plan of these settings and the batch fields of the `engine` table."""
    return resolve_batches(
        settings,
        training_cases=training_cases,
        world_size=world_size,
        num_iterations=int(settings.engine.get("num_iterations", 1)),
        steps_per_generation=settings.engine.get("steps_per_generation"),
    )


def check(settings: TrainSettings, training_cases: int = _MANY_CASES, world_size: int = 1) -> None:
    """Raise SettingError for settings that cannot work, before a model is loaded."""
    if unknown := [name for name in settings.report_to if name not in known_trackers()]:
        known = ", ".join(known_trackers())
        raise SettingError(f"report_to: there is no tracker {', '.join(unknown)}; use {known}")
    _refuse_several_gpus(settings)
    lora_config(settings)
    quantization_config(settings)
    _check_engine_table(settings.engine)
    scale_of(settings.engine)
    plan = plan_of(settings, training_cases, world_size)
    if world_size == 1:  # with several ranks, GRPOConfig would wait for the other processes
        grpo_config(settings, plan, Path("engine"))


def grpo_config(settings: TrainSettings, plan: BatchPlan, output: Path) -> Any:
    """Return TRL's configuration."""
    from trl import GRPOConfig

    on_cpu = device_of(settings) == "cpu"
    try:
        return GRPOConfig(
            **{name: value for name, value in settings.engine.items() if name not in _SET_BELOW},
            **_correction_fields(settings),
            output_dir=str(output),
            per_device_train_batch_size=plan.rows_per_pass,
            gradient_accumulation_steps=plan.passes_per_step,
            steps_per_generation=plan.steps_per_generation,
            num_generations=plan.rollouts_per_case,
            max_steps=plan.steps,
            learning_rate=settings.rate,
            max_grad_norm=settings.max_grad_norm,
            beta=settings.beta,
            temperature=settings.temperature,
            max_completion_length=settings.max_completion_length,
            mask_truncated_completions=False,  # rows have masks; TRL would mask attention too
            gradient_checkpointing=settings.gradient_checkpointing,
            bf16=uses_autocast(settings),
            use_cpu=on_cpu,
            seed=settings.seed,
            logging_steps=settings.logging_steps,
            logging_strategy="steps",
            logging_nan_inf_filter=False,  # the filter would hide that a run diverges
            ddp_timeout=settings.engine.get("ddp_timeout", _COLLECTIVE_TIMEOUT),
            save_strategy="no",  # `Steps` decides when to save
            eval_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            log_level="error",
        )
    except (ValueError, TypeError) as error:
        raise SettingError(f"TRL refuses these settings: {error}") from error


def why_one_row(settings: TrainSettings) -> str:
    """Return why a rollout may have only one row with these settings; empty if it may have more.

    Several rows are allowed if the weight of a token in the loss does not depend on its row.
    """
    loss = settings.engine.get("loss_type", "dapo")
    if loss not in _LOSSES_BY_TOKEN:
        return (
            f"engine.loss_type {loss!r} weighs tokens by the row they belong to; use "
            f"{' or '.join(map(repr, _LOSSES_BY_TOKEN))}"
        )
    if settings.engine.get("importance_sampling_level", "token") != "token":
        return "engine.importance_sampling_level weighs whole rows; use 'token'"
    default = "sequence_mask" if settings.sampling is None else "token_truncate"
    mode = settings.engine.get("vllm_importance_sampling_mode", default)
    if settings.sampling is not None and str(mode).startswith("sequence"):
        return (
            f"engine.vllm_importance_sampling_mode {mode!r} weighs whole rows; use 'token_truncate'"
        )
    for name in _BY_ROW_OR_PASS:
        if settings.engine.get(name):
            return f"engine.{name} is computed by row or by pass; remove it"
    return ""


def lora_config(settings: TrainSettings) -> Any:
    """Return PEFT's LoRA configuration; None for full fine-tuning."""
    if settings.adapters is None:
        return None
    try:
        from peft import LoraConfig
    except ModuleNotFoundError as error:
        raise MissingPackage(f"LoRA needs peft: {how_to_install('train')}") from error
    _refuse_fields(settings.adapters, _parameters(LoraConfig), "lora")
    return LoraConfig(**{**_LORA, **settings.adapters, "task_type": "CAUSAL_LM"})


def quantization_config(settings: TrainSettings) -> Any:
    """Return bitsandbytes' configuration; None for unquantized weights."""
    if not settings.quantization:
        return None
    from transformers import BitsAndBytesConfig

    fields = settings.quantization if isinstance(settings.quantization, dict) else {}
    _refuse_fields(fields, _parameters(BitsAndBytesConfig), "quantization")
    try:
        import bitsandbytes  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackage("a 4-bit base needs bitsandbytes: pip install bitsandbytes") from error
    computed = torch.float32 if device_of(settings) == "cpu" else torch.bfloat16
    return BitsAndBytesConfig(**{**_FOUR_BITS, "bnb_4bit_compute_dtype": computed, **fields})


def _refuse_several_gpus(settings: TrainSettings) -> None:
    """Raise SettingError if the only process sees several GPUs, or `device` is not the first one.

    TRL would fail only after the model is loaded.
    """
    device = device_of(settings)
    if not device.startswith("cuda"):
        return
    count = torch.cuda.device_count()
    if device not in ("cuda", "cuda:0"):
        raise SettingError(f"device {device}: choose the GPU with CUDA_VISIBLE_DEVICES instead")
    if count > 1 and int(os.environ.get("WORLD_SIZE", 1)) == 1:
        raise SettingError(
            f"this host has {count} GPUs, and a process uses one: pass --processes {count}, or set "
            "CUDA_VISIBLE_DEVICES=0"
        )


def device_of(settings: TrainSettings) -> str:
    """Return the device to train on: the setting, or the GPU if there is one."""
    return settings.device or ("cuda" if torch.cuda.is_available() else "cpu")


def dtype_of(settings: TrainSettings) -> str:
    """Return the precision of the forward pass."""
    if settings.dtype != "auto":
        return settings.dtype
    return "bfloat16" if device_of(settings).startswith("cuda") else "float32"


def weights_dtype(settings: TrainSettings) -> torch.dtype:
    """Return the precision of the loaded weights.

    Full fine-tuning uses float32, because an update of 1e-5 is lost in a bfloat16 weight. The base
    of an adapter is frozen, so it may be bfloat16; the adapter is always float32.
    """
    if uses_autocast(settings) or dtype_of(settings) == "float32":
        return torch.float32
    return torch.bfloat16


def uses_autocast(settings: TrainSettings) -> bool:
    """Whether the forward pass casts float32 weights to bfloat16."""
    return dtype_of(settings) == "bfloat16" and settings.adapters is None


# ------------------------------------------------------------------ refusing


def _check_engine_table(table: Table) -> None:
    from trl import GRPOConfig

    fields = {field.name for field in dataclasses.fields(GRPOConfig)}
    settings = set(TrainSettings.model_fields)
    problems = [problem for name in table if (problem := engine_problem(name, fields, settings))]
    problems = problems or _type_problems(table, GRPOConfig)
    if problems:
        raise SettingError("; ".join(problems))


def _type_problems(table: Table, config: type) -> list[str]:
    """Return messages about values of the wrong type, which TRL's dataclass would accept."""
    types = typing.get_type_hints(config)
    problems = []
    for name, value in table.items():
        try:
            TypeAdapter(types[name], config=_ANY_TYPE).validate_python(value)
        except ValidationError as error:
            problems.append(f"engine.{name}: {error.errors()[0]['msg']}, not {value!r}")
    return problems


def _correction_fields(settings: TrainSettings) -> dict[str, Any]:
    """Return TRL's correction of the gap to sampling servers: by token, unless `engine` sets it."""
    name = "vllm_importance_sampling_mode"
    if settings.sampling is None or name in settings.engine:
        return {}
    return {name: "token_truncate"}


def _refuse_fields(fields: Table, known: Collection[str], table: str) -> None:
    problems = [field_problem(name, known, f"{table}.") for name in fields]
    if any(problems):
        raise SettingError("; ".join(filter(None, problems)))


def _advice(name: str, known: set[str]) -> str:
    if name not in OURS and name in RUNNER_ARGUMENTS:
        return f"{name}: {RUNNER_ARGUMENTS[name]}"
    if not is_never_the_engines(name) and name in _engine_fields():
        return f"{name}: this is a field of the engine; write engine={{'{name}': …}}"
    return unknown_field(name, known)


def _engine_fields() -> set[str]:
    from trl import GRPOConfig

    return {field.name for field in dataclasses.fields(GRPOConfig)}


def _parameters(kind: type) -> list[str]:
    return list(inspect.signature(kind).parameters)
