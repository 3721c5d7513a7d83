"""Checks, before anything is written, whether this machine can write and play GGUF files."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import MissingPackage, UnknownArchitecture
from sparring.contracts.ship_specs import Form
from sparring.shipping.gguf_file import DIRECT, architecture_of, rope_of
from sparring.shipping.gguf_vocabulary import pre_tokenizer_of
from sparring.shipping.llama_cpp import LlamaCpp, require_quantizer, require_server
from sparring.shipping.source import Source


@dataclass(frozen=True, slots=True)
class PossibleForms:
    """The forms to write. `warning` states why a requested form is left out; empty if none is."""

    forms: tuple[Form, ...]
    warning: str = ""


def possible_forms(
    forms: Sequence[Form], source: Source, quantizations: Sequence[str], found: LlamaCpp
) -> PossibleForms:
    """Return the requested forms that can be written. If the model cannot be written as GGUF, GGUF
    and Ollama are left out, with a warning.

    Raises UnknownArchitecture if no form remains, and MissingPackage if GGUF is requested and a
    package for it is missing.
    """
    if Form.GGUF not in forms:
        return PossibleForms(tuple(forms))
    _require_packages(quantizations, found)
    problem = "" if found.converter else gguf_problem(source)
    if not problem:
        return PossibleForms(tuple(forms))
    others = tuple(each for each in forms if each not in (Form.GGUF, Form.OLLAMA))
    if not others:
        raise UnknownArchitecture(problem)
    return PossibleForms(others, f"gguf was left out: {problem}")


def gguf_problem(source: Source) -> str:
    """Return why Sparring's own converter cannot write this model as GGUF; empty if it can."""
    try:
        config = _config_of(source)
        architecture_of(config)
        rope_of(config)
        pre_tokenizer_of(json.loads(source.tokenizer.backend_tokenizer.to_str()))
    except UnknownArchitecture as error:
        return str(error)
    return ""


def _config_of(source: Source) -> dict[str, Any]:
    from transformers import AutoConfig

    place = source.base_place if source.is_adapter else str(source.checkpoint)
    config: dict[str, Any] = AutoConfig.from_pretrained(place).to_dict()
    return config


def _require_packages(quantizations: Sequence[str], found: LlamaCpp) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise MissingPackage("writing GGUF needs gguf: pip install 'sparring[ship]'")
    require_server(found)
    for quantization in quantizations:
        if quantization not in DIRECT:
            require_quantizer(found, quantization)
