"""Adapters carry no path of this machine; merged weights are those of base and adapter."""

from __future__ import annotations

import json
import stat

import torch

from sparring.shipping.artefacts import Artefact
from sparring.shipping.source import Source, load_trained
from sparring.shipping.weights import module_names


def test_an_adapter_names_its_base_without_a_path(
    artefacts: dict[str, Artefact], source: Source
) -> None:
    folder = artefacts["adapter"].place
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == source.base_name
    assert "/" not in config["base_model_name_or_path"]
    assert config["target_modules"] == sorted(config["target_modules"])
    mode = (folder / "adapter_model.safetensors").stat().st_mode
    assert mode & stat.S_IROTH


def test_merged_weights_are_base_plus_adapter(
    artefacts: dict[str, Artefact], source: Source
) -> None:
    from safetensors.torch import load_file

    merged = load_file(artefacts["merged"].place / "model.safetensors")
    expected = load_trained(source).merge_and_unload().state_dict()
    for name, weights in merged.items():
        assert torch.allclose(weights, expected[name], atol=1e-6), name
    config = json.loads((artefacts["merged"].place / "config.json").read_text())
    assert config["dtype"] == "float32"
    assert "_name_or_path" not in config


def test_the_modules_of_a_base_are_listed(source: Source) -> None:
    assert "model.layers.0.self_attn.q_proj" in module_names(source)
