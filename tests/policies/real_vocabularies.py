"""Tokenizers with the real vocabularies of models, from the GGUF files that come with the sources
of llama.cpp. `make llama-sources` puts them where `LLAMA_CPP_PATH` points."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sparring.shipping.llama_cpp import VARIABLE

_QWEN_TAGS = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip
REAL = {
    **dict.fromkeys(("qwen2.5", "qwen3", "qwen3-2507", "qwen3-vl", "qwen3-coder"), "qwen2"),
    **dict.fromkeys(("llama3", "llama3-plain"), "llama-bpe"),
    **dict.fromkeys(("phi3", "phi3.5"), "phi-3"),
    "gemma4": "gemma-4",
}


def real_tokenizer(family: str) -> Any | None:
    """Return a tokenizer with the vocabulary of the family's models; None where there is none."""
    folder = Path(os.environ.get(VARIABLE, "")) / "models"
    file = folder / f"ggml-vocab-{REAL.get(family)}.gguf"
    if VARIABLE not in os.environ or not file.is_file():
        return None
    if REAL[family] == "gemma-4":
        return _gemma(file)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
    if REAL[family] == "qwen2":
        tokenizer.add_tokens(list(_QWEN_TAGS))
    return tokenizer


def _gemma(file: Path) -> Any:
    """Build Gemma's tokenizer, which transformers does not read from GGUF."""
    import gguf
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers as splitters
    from transformers import PreTrainedTokenizerFast

    fields = gguf.GGUFReader(file).fields
    tokens, merges, kinds = (
        fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges", "token_type")
    )
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = models.BPE(vocabulary, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = splitters.Split(Regex(" "), "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind in (3, 4)]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    )
