"""Forms are chosen by what the checkpoint has; sizes are estimated before anything is written."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sparring.contracts.errors import InvalidInput, MissingPackage, UnknownArchitecture
from sparring.contracts.kinds import Form
from sparring.shipping.artefacts import (
    Artefact,
    chosen_forms,
    gguf_problem,
    module_names,
    needed_bytes,
    possible_forms,
)
from sparring.shipping.llama_cpp import LlamaCpp
from sparring.shipping.source import Source, load_trained, open_source
from tests.shipping.made import edit_json

SERVER = LlamaCpp(server=("llama-server",))
ALL = (Form.ADAPTER, Form.MERGED, Form.GGUF, Form.OLLAMA)


def test_by_default_all_forms_are_written_that_the_checkpoint_has(
    source: Source, tiny_folder: Path
) -> None:
    assert chosen_forms((), source) == (Form.ADAPTER, Form.MERGED, Form.GGUF)
    whole = replace(source, checkpoint=tiny_folder)
    assert chosen_forms((), whole) == (Form.MERGED, Form.GGUF)
    assert chosen_forms((Form.OLLAMA,), whole) == (Form.GGUF, Form.OLLAMA)
    with pytest.raises(InvalidInput, match="has no adapter"):
        chosen_forms((Form.ADAPTER,), whole)


def test_the_estimate_covers_what_is_written(
    source: Source, artefacts: dict[str, Artefact]
) -> None:
    forms = (Form.ADAPTER, Form.MERGED, Form.GGUF)
    needed = needed_bytes(source, forms, ("f32", "f16", "q8_0"))
    written = sum(each.size for each in artefacts.values())
    assert written <= needed
    assert needed_bytes(source, forms, ("q4_k_m",)) > needed_bytes(source, (Form.ADAPTER,), ())


@pytest.fixture
def strange(source: Source, tiny_folder: Path, tmp_path: Path) -> Any:
    """The same checkpoint on a base whose config says something else."""

    def change(**changes: Any) -> Source:
        base = tmp_path / "base"
        shutil.copytree(tiny_folder, base, dirs_exist_ok=True)
        edit_json(base / "config.json", **changes)
        return open_source(source.checkpoint, str(base), None)

    return change


def test_a_known_model_keeps_all_forms(source: Source) -> None:
    assert possible_forms(ALL, source, ["q8_0"], SERVER).forms == ALL


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["Gemma3ForCausalLM"]}, "this model is a Gemma3ForCausalLM"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0}}, "'yarn'"),
    ],
)
def test_an_unknown_one_is_shipped_in_its_other_forms_with_a_warning(
    strange: Any, changes: dict[str, Any], named: str
) -> None:
    found = possible_forms(ALL, strange(**changes), ["q8_0"], SERVER)
    assert found.forms == (Form.ADAPTER, Form.MERGED)
    assert found.warning.startswith("gguf was left out: ")
    assert named in found.warning
    assert "--llama-cpp" in found.warning


def test_an_unknown_architecture_is_refused_if_only_gguf_was_requested(strange: Any) -> None:
    unknown = strange(architectures=["Gemma3ForCausalLM"])
    with pytest.raises(UnknownArchitecture, match="Gemma3ForCausalLM"):
        possible_forms((Form.GGUF, Form.OLLAMA), unknown, ["q8_0"], SERVER)


def test_llama_cpps_converter_takes_what_is_unknown_here(strange: Any) -> None:
    found = LlamaCpp(server=("llama-server",), converter=(sys.executable, "convert.py"))
    unknown = strange(architectures=["Gemma3ForCausalLM"])
    assert possible_forms(ALL, unknown, ["q8_0"], found).forms == ALL


def test_an_unknown_tokenizer_is_named(source: Source) -> None:
    class Backend:
        def to_str(self) -> str:
            return json.dumps({"model": {"type": "Unigram"}, "pre_tokenizer": None})

    tokenizer = type("Tokenizer", (), {"backend_tokenizer": Backend()})()
    changed = Source(
        source.checkpoint, source.base, source.base_place, tokenizer, source.family, source.template
    )
    assert "a Unigram model" in gguf_problem(changed)


def test_a_missing_server_and_quantiser_are_refused_at_once(source: Source) -> None:
    with pytest.raises(MissingPackage, match=r"no llama\.cpp server was found"):
        possible_forms(ALL, source, ["q8_0"], LlamaCpp())
    with pytest.raises(MissingPackage, match=r"q4_k_m needs llama\.cpp's quantiser"):
        possible_forms(ALL, source, ["q8_0", "q4_k_m"], SERVER)
    assert possible_forms((Form.MERGED,), source, ["q4_k_m"], LlamaCpp()).forms == (Form.MERGED,)


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
