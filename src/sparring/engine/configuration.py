"""From our settings to those of TRL, PEFT and bitsandbytes; what cannot work is refused.

A field that would do nothing, or that is ours to set, is refused with the name to use. So
is a field that does not exist, with the nearest that does.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError

from sparring.contracts.errors import MissingPackage, SettingError
from sparring.contracts.refused_settings import OURS, is_never_the_engines
from sparring.contracts.specs import Table
from sparring.contracts.training import TrainSettings
from sparring.learning.batches import BatchPlan, solve
from sparring.trackers import TRACKERS

_PLENTY = 1 << 30
_PATIENCE_SECONDS = 6 * 3600  # ranks wait for the slowest tool of the slowest rank
_SET_BELOW = ("steps_per_generation", "ddp_timeout")
_LOOSE = ConfigDict(arbitrary_types_allowed=True)
_LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "target_modules": "all-linear"}
_FOUR_BITS = {
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
}


def refuse_unknown(names: Iterable[str]) -> None:
    """Refuse settings that `TrainSettings` does not have, each with what to do instead."""
    known = set(TrainSettings.model_fields)
    problems = [_advice(name, known) for name in names if name not in known]
    if problems:
        raise SettingError("; ".join(problems))


def plan_of(settings: TrainSettings, training_cases: int, world_size: int) -> BatchPlan:
    """The batch arithmetic, with what the engine's table says about it."""
    return solve(
        settings,
        training_cases=training_cases,
        world_size=world_size,
        num_iterations=int(settings.engine.get("num_iterations", 1)),
        steps_per_generation=settings.engine.get("steps_per_generation"),
    )


def check(settings: TrainSettings, training_cases: int = _PLENTY, world_size: int = 1) -> None:
    """Refuse what cannot work before a model is loaded for minutes."""
    if unknown := [name for name in settings.report_to if name not in TRACKERS]:
        raise SettingError(
            f"report_to: there is no tracker {', '.join(unknown)}; there are {', '.join(TRACKERS)}"
        )
    _refuse_several_gpus(settings)
    lora_config(settings)
    quantization_config(settings)
    _check_engine_table(settings.engine)
    plan = plan_of(settings, training_cases, world_size)
    if world_size == 1:  # of a gang, it would wait for the other ranks
        grpo_config(settings, plan, Path("engine"))


def grpo_config(
    settings: TrainSettings, plan: BatchPlan, output: Path, stop_ids: Sequence[int] = ()
) -> Any:
    """TRL's configuration of this run. `stop_ids` end a turn where vLLM samples."""
    from trl import GRPOConfig

    on_cpu = device_of(settings) == "cpu"
    try:
        return GRPOConfig(
            **{name: value for name, value in settings.engine.items() if name not in _SET_BELOW},
            **_vllm_fields(settings, GRPOConfig, stop_ids),
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
            mask_truncated_completions=False,  # it would silence attention, too; our masks do it
            gradient_checkpointing=settings.gradient_checkpointing,
            bf16=uses_autocast(settings),
            use_cpu=on_cpu,
            seed=settings.seed,
            logging_steps=settings.logging_steps,
            logging_strategy="steps",
            logging_nan_inf_filter=False,  # it would hide a run that has come apart
            ddp_timeout=settings.engine.get("ddp_timeout", _PATIENCE_SECONDS),
            save_strategy="no",  # ours are written aside and verified
            eval_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            log_level="error",
        )
    except (ValueError, TypeError) as error:
        raise SettingError(f"TRL refuses these settings: {error}") from error


def lora_config(settings: TrainSettings) -> Any:
    """PEFT's configuration; None for full fine-tuning."""
    if settings.adapters is None:
        return None
    try:
        from peft import LoraConfig
    except ModuleNotFoundError as error:
        raise MissingPackage("LoRA needs peft: pip install 'sparring[train]'") from error
    _refuse_fields(settings.adapters, _parameters(LoraConfig), "lora")
    return LoraConfig(**{**_LORA, **settings.adapters, "task_type": "CAUSAL_LM"})


def quantization_config(settings: TrainSettings) -> Any:
    """bitsandbytes' configuration; None for weights as they are."""
    if not settings.quantization:
        return None
    from transformers import BitsAndBytesConfig

    given = settings.quantization if isinstance(settings.quantization, dict) else {}
    _refuse_fields(given, _parameters(BitsAndBytesConfig), "quantization")
    if device_of(settings) == "cpu":
        raise SettingError("a 4-bit base needs a GPU; leave `quantization` out on a CPU")
    try:
        import bitsandbytes  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackage("a 4-bit base needs bitsandbytes: pip install bitsandbytes") from error
    return BitsAndBytesConfig(**{**_FOUR_BITS, "bnb_4bit_compute_dtype": torch.bfloat16, **given})


def _refuse_several_gpus(settings: TrainSettings) -> None:
    """One process sees all GPUs and can use one; TRL would find that out after loading."""
    device = device_of(settings)
    if not device.startswith("cuda"):
        return
    count = torch.cuda.device_count()
    if device not in ("cuda", "cuda:0"):
        raise SettingError(f"device {device}: say which GPU with CUDA_VISIBLE_DEVICES instead")
    if count > 1 and int(os.environ.get("WORLD_SIZE", 1)) == 1:
        raise SettingError(
            f"this host has {count} GPUs and one process uses one: pass --processes {count}, or "
            "set CUDA_VISIBLE_DEVICES=0"
        )


def device_of(settings: TrainSettings) -> str:
    return settings.device or ("cuda" if torch.cuda.is_available() else "cpu")


def dtype_of(settings: TrainSettings) -> str:
    """What the forward pass computes in."""
    if settings.dtype != "auto":
        return settings.dtype
    return "bfloat16" if device_of(settings).startswith("cuda") else "float32"


def weights_dtype(settings: TrainSettings) -> torch.dtype:
    """What the weights are kept in. Fully trained ones stay in float32, for an update of 1e-5
    is lost in a bfloat16 weight; adapters are float32 over a base that does not move."""
    if uses_autocast(settings) or dtype_of(settings) == "float32":
        return torch.float32
    return torch.bfloat16


def uses_autocast(settings: TrainSettings) -> bool:
    return dtype_of(settings) == "bfloat16" and settings.adapters is None


# ------------------------------------------------------------------ refusing


def _check_engine_table(given: Table) -> None:
    from trl import GRPOConfig

    fields = {field.name for field in dataclasses.fields(GRPOConfig)}
    settings = set(TrainSettings.model_fields)
    problems = []
    for name in given:
        if name in settings:
            problems.append(f"engine.{name}: {name} is a setting of its own; set it there")
        elif name.startswith("vllm_") and name in fields and not _is_of_the_loss(name):
            problems.append(f"engine.{name}: use vllm={{'{name.removeprefix('vllm_')}': …}}")
        elif is_never_the_engines(name) or name not in fields:
            problems.append(_advice(name, fields, "engine."))
    problems = problems or _wrongly_typed(given, GRPOConfig)
    if problems:
        raise SettingError("; ".join(problems))


def _wrongly_typed(given: Table, config: type) -> list[str]:
    """TRL's dataclass takes a value of any type and stumbles over it later."""
    kinds = typing.get_type_hints(config)
    problems = []
    for name, value in given.items():
        try:
            TypeAdapter(kinds[name], config=_LOOSE).validate_python(value)
        except ValidationError as error:
            problems.append(f"engine.{name}: {error.errors()[0]['msg']}, not {value!r}")
    return problems


def _is_of_the_loss(name: str) -> bool:
    return name.startswith("vllm_importance_sampling_")


def _vllm_fields(settings: TrainSettings, config: type, stop_ids: Sequence[int]) -> dict[str, Any]:
    if settings.vllm is False:
        return {}
    given = {"mode": settings.vllm} if isinstance(settings.vllm, str) else dict(settings.vllm)
    fields = {field.name for field in dataclasses.fields(config)}
    known = [name.removeprefix("vllm_") for name in fields if name.startswith("vllm_")]
    _refuse_fields(given, known, "vllm")
    return {
        "use_vllm": True,
        "generation_kwargs": {"stop_token_ids": list(stop_ids)},
        **{f"vllm_{name}": value for name, value in given.items()},
    }


def _refuse_fields(given: Table, known: Iterable[str], table: str) -> None:
    if unknown := [name for name in given if name not in set(known)]:
        raise SettingError("; ".join(_advice(name, set(known), f"{table}.") for name in unknown))


def _advice(name: str, known: set[str], prefix: str = "") -> str:
    if name in OURS:
        return f"{prefix}{name}: {OURS[name]}"
    if is_never_the_engines(name):
        return f"{prefix}{name}: checkpoints, validation and publishing are not the engine's here"
    if not prefix and name in _engine_fields():
        return f"{name}: a field of the engine; write engine={{'{name}': …}}"
    near = difflib.get_close_matches(name, known, 1)
    told = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)[:40])}"
    return f"{prefix}{name}: there is no such setting; {told}"


def _engine_fields() -> set[str]:
    from trl import GRPOConfig

    return {field.name for field in dataclasses.fields(GRPOConfig)}


def _parameters(kind: type) -> list[str]:
    return list(inspect.signature(kind).parameters)
