"""Loads earlier adapters into the model, to recompute log-probabilities of their rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from sparring.contracts.errors import SettingError
from sparring.contracts.policies import PublishedWeights

ADAPTER = "default"
ADAPTER_FILE = "adapter_model.safetensors"


class AdapterVersions:
    """Keeps the last `kept` published adapters in memory, and reads older ones from disk."""

    def __init__(self, model: Any, kept: int) -> None:
        self._model = model
        self._kept = kept
        self._states: dict[str, Mapping[str, torch.Tensor]] = {}
        if any(hasattr(weights, "ds_tensor") for weights in model.parameters()):
            raise SettingError(
                "max_staleness does not work with ZeRO-3, because an earlier adapter cannot be "
                "loaded into the model; use FSDP2 or ZeRO-2, or set max_staleness to 0"
            )

    def keep(self, name: str, state: Mapping[str, torch.Tensor]) -> None:
        """Keep the tensors of the version published under `name`. They must be copies."""
        self._states[name] = state
        for old in list(self._states)[: -self._kept]:
            del self._states[old]

    @contextmanager
    def in_model(self, weights: PublishedWeights) -> Iterator[None]:
        """Replace the model's adapter with these weights inside the context. All ranks must
        enter."""
        state = self._states.get(weights.name)
        if state is None:
            state = load_file(Path(weights.path) / ADAPTER_FILE)
        parameters = adapter_parameters(self._model)
        with torch.no_grad():
            current = {name: each.detach().clone() for name, each in parameters.items()}
            for name, each in parameters.items():
                each.copy_(_placed_like(each, state[name]))
        try:
            yield
        finally:
            with torch.no_grad():
                for name, each in parameters.items():
                    each.copy_(current[name])


def adapter_parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    """Return the adapter's parameters, by the names under which PEFT saves them."""
    from peft import get_peft_model_state_dict

    named = [(name, each) for name, each in model.named_parameters() if "lora_" in name]
    numbers = {name: torch.tensor(number) for number, (name, _) in enumerate(named)}
    saved = get_peft_model_state_dict(model, state_dict=numbers, adapter_name=ADAPTER)
    return {name: named[int(number)][1] for name, number in saved.items()}


def _placed_like(parameter: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    from torch.distributed.tensor import DTensor, distribute_tensor

    value = whole.to(parameter.device)
    if isinstance(parameter, DTensor):
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
    return value
