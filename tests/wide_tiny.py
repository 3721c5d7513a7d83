"""The tiny model with heads that vLLM computes on a CPU: 64 wide, where the tiny one has 16."""

from __future__ import annotations

from pathlib import Path


def wide_tiny(tiny: Path, folder: Path, *, is_tied: bool = True) -> Path:
    """Write the model to `folder` and return it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    config = AutoConfig.from_pretrained(tiny)
    config.head_dim = 64
    config.tie_word_embeddings = is_tied
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    return folder
