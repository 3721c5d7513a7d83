"""What GGUF needs is asked for at the beginning; a model without a GGUF form keeps the others."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import MissingPackage, UnknownArchitecture
from sparring.contracts.ship_specs import Form
from sparring.shipping.gguf_support import gguf_problem, possible_forms
from sparring.shipping.llama_cpp import LlamaCpp
from sparring.shipping.source import Source, open_source
from tests.shipping.made import edit_json

SERVER = LlamaCpp(server=("llama-server",))
ALL = (Form.ADAPTER, Form.MERGED, Form.GGUF, Form.OLLAMA)


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


def test_it_is_refused_if_nothing_else_was_asked_for(strange: Any) -> None:
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
