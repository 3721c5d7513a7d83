"""Adapters of 4-bit bases: the checkpoint says how its base was rounded, and is loaded on that."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, MissingPackage
from sparring.contracts.kinds import Form
from sparring.policies.pretrained import load_weights
from sparring.policies.quantized_base import (
    load_rounded,
    quantization_of,
    record_quantization,
)
from sparring.run_folder.files import write_json
from sparring.shipping.artefacts import chosen_forms

FOUR_BITS = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def model(config: dict[str, Any] | None) -> Any:
    own = SimpleNamespace(to_dict=lambda: config) if config else None
    return SimpleNamespace(config=SimpleNamespace(quantization_config=own))


def test_a_checkpoint_states_how_its_base_was_rounded(tmp_path: Path) -> None:
    record_quantization(model(FOUR_BITS), tmp_path)
    assert quantization_of(tmp_path) == FOUR_BITS


def test_a_checkpoint_of_an_unrounded_base_states_nothing(tmp_path: Path) -> None:
    record_quantization(model(None), tmp_path)
    record_quantization(SimpleNamespace(config=SimpleNamespace()), tmp_path)
    record_quantization(model({"quant_method": "gptq", "bits": 4}), tmp_path)
    own = SimpleNamespace(quantization_config={"quant_method": "fp8"})
    record_quantization(SimpleNamespace(config=own), tmp_path)
    assert quantization_of(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_without_bitsandbytes_the_package_is_named_and_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    record_quantization(model(FOUR_BITS), tmp_path)
    write_json(tmp_path / "adapter_config.json", {"base_model_name_or_path": "nobody/nothing"})
    for load in (
        lambda: load_rounded("nobody/nothing", FOUR_BITS),
        lambda: load_weights(str(tmp_path)),
    ):
        with pytest.raises(MissingPackage, match=r"trained on a 4-bit base.*bitsandbytes"):
            load()


def test_the_adapter_of_a_rounded_base_is_shipped_merged_only(tmp_path: Path) -> None:
    record_quantization(model(FOUR_BITS), tmp_path)
    source: Any = SimpleNamespace(checkpoint=tmp_path, is_adapter=True)
    assert chosen_forms([], source) == (Form.MERGED, Form.GGUF)
    with pytest.raises(InvalidInput, match="use --form merged,gguf"):
        chosen_forms([Form.ADAPTER], source)
