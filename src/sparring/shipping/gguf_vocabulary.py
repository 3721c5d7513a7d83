"""Writes a fast tokenizer's vocabulary into a GGUF file, with the pre-tokenizer llama.cpp needs.

llama.cpp implements pre-tokenizers by name. Sparring derives the name from the steps in
`tokenizer.json`, so that tokenizers with the same steps get the same name. (llama.cpp's converter
looks up a hash of the tokens of a sample text.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparring.contracts.errors import UnknownTokenizer

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_WHOLE_WORDS = "words of the vocabulary are not merged"
_SPECIAL_TYPES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


def add_vocabulary(writer: Any, folder: Path, vocabulary_size: int) -> None:
    """Add the tokenizer in `folder` to a GGUF writer: tokens, merges, special tokens, template."""
    import gguf
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer_of(content))
    texts, types = _tokens(tokenizer, vocabulary_size)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    special = gguf.SpecialVocab(folder, load_merges=True, special_token_types=_SPECIAL_TYPES)
    special.add_to_gguf(writer, quiet=True)


def pre_tokenizer_of(content: Mapping[str, Any]) -> str:
    """Return llama.cpp's name for the pre-tokenizer in a `tokenizer.json`. Raises UnknownTokenizer
    if the name is not known."""
    model = content.get("model") or {}
    kind = model.get("type")
    shape = tuple(_signature(step) for step in _steps(content.get("pre_tokenizer")))
    if model.get("ignore_merges"):
        shape += (_WHOLE_WORDS,)
    names = {
        ("bytes+regex",): "gpt-2",
        ("digits", "bytes+regex"): "smollm",
        (f"split {_LLAMA3}", "bytes", _WHOLE_WORDS): "llama-bpe",
        (f"split {_LLAMA3}", "bytes"): "smaug-bpe",
        (f"split {_QWEN2}", "bytes"): "qwen2",
    }
    if kind != "BPE" or shape not in names:
        found = f"a {kind} model with the steps {', '.join(shape) or 'none'}"
        raise UnknownTokenizer(
            f"Sparring does not know llama.cpp's name for this pre-tokenizer ({found[:300]}). "
            "Pass the folder of llama.cpp's convert_hf_to_gguf.py with --llama-cpp, or leave out "
            "the form gguf"
        )
    return names[shape]


def _tokens(tokenizer: Any, size: int) -> tuple[list[str], list[int]]:
    """Return the text and type of each id below `size`. Ids without a token get a placeholder:
    the embeddings of many models have more rows than the tokenizer has tokens."""
    import gguf

    by_id = {number: text for text, number in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    texts, types = [], []
    for number in range(size):
        if number not in by_id:
            texts.append(f"[PAD{number}]")
            types.append(int(gguf.TokenType.UNUSED))
            continue
        text, token = by_id[number], added.get(number)
        is_control = token is not None and (token.special or _looks_special(text))
        if token is None:
            kind = gguf.TokenType.NORMAL
        else:
            kind = gguf.TokenType.CONTROL if is_control else gguf.TokenType.USER_DEFINED
        texts.append(text)
        types.append(int(kind))
    return texts, types


def _looks_special(text: str) -> bool:
    """Whether llama.cpp's converter treats an added token with this text as a control token."""
    return text.startswith("<|") and text.endswith("|>")


def _steps(pre_tokenizer: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if pre_tokenizer is None:
        return []
    if pre_tokenizer["type"] == "Sequence":
        return list(pre_tokenizer["pretokenizers"])
    return [pre_tokenizer]


def _signature(step: Mapping[str, Any]) -> str:
    """Return a step as text, without settings that do not affect the tokens."""
    match step["type"]:
        case "ByteLevel" if not step.get("add_prefix_space"):
            return "bytes+regex" if step.get("use_regex", True) else "bytes"
        case "Digits" if step.get("individual_digits"):
            return "digits"
        case "Split" if step.get("behavior") == "Isolated" and not step.get("invert"):
            return f"split {step['pattern'].get('Regex', step['pattern'])}"
    return json.dumps(step, sort_keys=True)
