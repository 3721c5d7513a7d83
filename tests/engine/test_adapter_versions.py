"""An earlier adapter in the model, for the time of a score."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from sparring.contracts.errors import SettingError
from sparring.contracts.policies import PublishedWeights
from sparring.engine.adapter_versions import ADAPTER_FILE, AdapterVersions


@pytest.fixture
def adapted(tiny_folder: Path) -> Any:
    base = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    return get_peft_model(base, LoraConfig(r=4, lora_dropout=0.0, target_modules="all-linear"))


def filled(model: Any, amount: float) -> dict[str, torch.Tensor]:
    """The adapter, with this number in all of its B matrices; the model has it too."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:
                weights.fill_(amount)
    return {name: each.clone() for name, each in get_peft_model_state_dict(model).items()}


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model(input_ids=torch.tensor([[5, 6, 7]])).logits
        return result


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_the_model_computes_with_the_version_and_is_unchanged_afterwards(
    is_in_memory: bool, adapted: Any, tmp_path: Path
) -> None:
    old = filled(adapted, 0.1)
    by_old = logits(adapted)
    weights = PublishedWeights(3, "run-v3", str(tmp_path))
    versions = AdapterVersions(adapted, 2)
    if is_in_memory:
        versions.keep("run-v3", old)
    else:
        save_file(old, str(tmp_path / ADAPTER_FILE))
    filled(adapted, 0.7)
    by_new = logits(adapted)
    with suppress(KeyError), versions.in_model(weights):
        assert torch.equal(logits(adapted), by_old)
        raise KeyError
    assert torch.equal(logits(adapted), by_new)
    assert not torch.equal(by_new, by_old)


def test_only_the_last_versions_stay_in_memory(adapted: Any, tmp_path: Path) -> None:
    versions = AdapterVersions(adapted, 2)
    for number in range(3):
        versions.keep(f"v{number}", filled(adapted, number / 10))
    lost = PublishedWeights(0, "v0", str(tmp_path))
    with pytest.raises(FileNotFoundError), versions.in_model(lost):
        pass
    with versions.in_model(PublishedWeights(1, "v1", str(tmp_path))):
        pass


def test_partitioned_weights_are_refused_with_the_next_step() -> None:
    weights = torch.nn.Parameter(torch.zeros(1))
    weights.ds_tensor = weights  # type: ignore[attr-defined]
    with pytest.raises(SettingError, match="ZeRO-2"):
        AdapterVersions(SimpleNamespace(parameters=lambda: [weights]), 2)
