"""Pre-tokenizers are named by their structure; unknown ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.contracts.errors import UnknownTokenizer
from sparring.shipping.gguf_vocabulary import _LLAMA3, _QWEN2, pre_tokenizer_of

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PLAIN = {**BYTES, "use_regex": False}
DIGITS = {"type": "Digits", "individual_digits": True}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def content(*steps: dict[str, Any], kind: str = "BPE") -> dict[str, Any]:
    pre = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": list(steps)}
    return {"model": {"type": kind}, "pre_tokenizer": pre}


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ((BYTES,), "gpt-2"),
        ((DIGITS, BYTES), "smollm"),
        ((split(_LLAMA3), PLAIN), "smaug-bpe"),
        ((split(_QWEN2), PLAIN), "qwen2"),
    ],
)
def test_a_known_structure_has_llama_cpps_name(steps: Any, name: str) -> None:
    assert pre_tokenizer_of(content(*steps)) == name


def test_llama_3_does_not_merge_words_of_its_vocabulary() -> None:
    llama = content(split(_LLAMA3), PLAIN)
    llama["model"]["ignore_merges"] = True
    assert pre_tokenizer_of(llama) == "llama-bpe"


@pytest.mark.parametrize(
    "unknown",
    [
        content({**BYTES, "add_prefix_space": True}),
        content(split("[a-z]+"), PLAIN),
        content(BYTES, DIGITS),
        content(BYTES, kind="Unigram"),
        {"model": {"type": "BPE"}, "pre_tokenizer": None},
    ],
)
def test_an_unknown_structure_is_refused_with_a_way_out(unknown: Any) -> None:
    with pytest.raises(UnknownTokenizer, match="--llama-cpp, or leave out the form gguf"):
        pre_tokenizer_of(unknown)
