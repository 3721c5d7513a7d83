"""Writes a checkpoint's weights: as an adapter, and merged into the base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from sparring.contracts.errors import FaultyArtefact
from sparring.run_folder.files import read_json, write_json
from sparring.shipping.source import ADAPTER_CONFIG, Source, load_base, load_trained, shipped_dtype

_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PARTS = (".lora_A", ".lora_B", ".lora_embedding_A", ".lora_embedding_B", ".lora_magnitude_vector")


def write_adapter(source: Source, folder: Path) -> None:
    """Write the adapter in the format of PEFT, which vLLM also loads, without local paths."""
    shutil.copyfile(source.checkpoint / _WEIGHTS, folder / _WEIGHTS)
    config = read_json(source.checkpoint / ADAPTER_CONFIG)
    config["base_model_name_or_path"] = source.base_name
    config["inference_mode"] = True
    if isinstance(config.get("target_modules"), list):
        config["target_modules"] = sorted(config["target_modules"])
    write_json(folder / ADAPTER_CONFIG, config)
    (folder / _WEIGHTS).chmod(0o644)


def write_merged(source: Source, folder: Path) -> None:
    """Write the whole model at the base's dtype. The merge is computed in float32."""
    import torch
    from transformers import GenerationConfig

    model = load_trained(source)
    if source.is_adapter:
        model = model.merge_and_unload()
    dtype = shipped_dtype(source)
    model = model.to(getattr(torch, dtype))
    model.config.dtype = dtype
    model.generation_config = GenerationConfig()  # the caller writes the proof's
    model.save_pretrained(folder)
    config = read_json(folder / "config.json")
    config.pop("_name_or_path", None)
    write_json(folder / "config.json", config)
    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)


def check_adapter_names(folder: Path, module_names: set[str]) -> None:
    """Raise FaultyArtefact if a tensor of the adapter belongs to no module of the base, or if a
    target module has no tensors. Programs that load such an adapter may serve the base."""
    names = _tensor_names(folder / _WEIGHTS)
    strange = [name for name in names if _module_of(name) not in module_names]
    if strange:
        raise FaultyArtefact(
            f"{len(strange)} of {len(names)} tensors of the adapter name no module of the base, "
            f"such as {strange[0]}; a program that ignores them serves the base model, or only "
            "part of the training"
        )
    targets = read_json(folder / ADAPTER_CONFIG).get("target_modules") or []
    if isinstance(targets, str):  # a pattern
        return
    modules = [f".{_module_of(name)}" for name in names]
    missing = [each for each in targets if not any(at.endswith(f".{each}") for at in modules)]
    if missing:
        raise FaultyArtefact(
            f"the adapter has no tensors for {', '.join(sorted(missing)[:4])}, which its config "
            "names; a program that loads it fails, or serves only part of the training"
        )


def module_names(source: Source) -> set[str]:
    """Return the names of all modules of the base."""
    return {name for name, _ in load_base(source).named_modules()}


def _module_of(tensor: str) -> str:
    name = tensor.removeprefix(_PREFIX) if tensor.startswith(_PREFIX) else f"({tensor})"
    for part in _PARTS:
        if part in name:
            return name.partition(part)[0]
    return name.removesuffix(".weight").removesuffix(".bias")


def _tensor_names(file: Path) -> list[str]:
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        header: dict[str, Any] = json.loads(opened.read(size))
    return [name for name in header if name != "__metadata__"]
