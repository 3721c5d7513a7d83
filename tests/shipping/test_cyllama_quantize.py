"""The names of quantisations have llama.cpp's numbers; the package is called with them."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import gguf
import pytest

from sparring.contracts.kinds import QUANTIZATIONS
from sparring.shipping.cyllama_quantize import FILE_TYPES, main
from sparring.shipping.gguf_file import DIRECT


def test_every_quantisation_that_is_not_written_directly_has_its_number() -> None:
    assert {name.upper() for name in QUANTIZATIONS} - {name.upper() for name in DIRECT} == set(
        FILE_TYPES
    )
    for name, number in FILE_TYPES.items():
        assert gguf.LlamaFileType[f"MOSTLY_{name}"] == number


def test_the_package_quantises_with_the_number_of_the_quantisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    fake: Any = ModuleType("cyllama.llama.llama_cpp")
    fake.LlamaModelQuantizeParams = SimpleNamespace
    fake.model_quantize = lambda *arguments: calls.append(arguments)
    parent: Any = ModuleType("cyllama.llama")
    parent.llama_cpp = fake
    monkeypatch.setitem(sys.modules, "cyllama", ModuleType("cyllama"))
    monkeypatch.setitem(sys.modules, "cyllama.llama", parent)
    assert main(["a.gguf", "b.gguf", "Q4_K_M"]) == 0
    (source, target, parameters) = calls[0]
    assert (source, target, parameters.ftype, parameters.nthread) == ("a.gguf", "b.gguf", 15, 1)
