"""A codec for each built-in family, on the vocabulary of its models where it is at hand, else on a
byte-level one with the family's special tokens."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tokenizers import AddedToken

from sparring.models.tiny import build_tokenizer
from sparring.policies.codec import ChatCodec
from sparring.policies.families import TABLE, family_named
from tests.policies.real_vocabularies import real_tokenizer

_SPECIAL = re.compile(
    r"<\|[A-Za-z_\"]+\|?>|<｜[^｜<>]+｜>|<(?:start|end)_of_turn>|\[gMASK\]|<sop>|<[a-z_]+\|>"
)
_FIRST = {
    "llama3": "<|begin_of_text|>",
    "llama3-plain": "<|begin_of_text|>",
    "gemma": "<bos>",
    "gemma3": "<bos>",
    "gemma4": "<bos>",
    "cohere": "<BOS_TOKEN>",
    "cohere2": "<BOS_TOKEN>",
    "lfm2": "<|startoftext|>",
    "lfm2.5": "<|startoftext|>",
    "deepseek-v3": "<｜begin▁of▁sentence｜>",
    "phi3": "<s>",
    "phi3.5": "<s>",
}
_UNWRITTEN = {"llama3": ["<|python_tag|>"]}  # tokens that the template does not write
WITH_TOOLS = [name for name, entry in TABLE.items() if entry.tier < 3]
WITHOUT_TOOLS = [name for name, entry in TABLE.items() if entry.tier == 3]


@cache
def codec_of(name: str) -> ChatCodec:
    """Return a codec of the family, with the vocabulary of its models where it is at hand."""
    return _build(name, real_tokenizer(name))


@cache
def byte_level_codec_of(name: str) -> ChatCodec:
    """Return a codec of the family with a small vocabulary."""
    return _build(name, None)


def _build(name: str, tokenizer: Any | None) -> ChatCodec:
    """Return a codec whose control tokens are special tokens."""
    family = family_named(name)
    ends = [
        *_UNWRITTEN.get(name, []),
        family.end_of_turn,
        *family.also_stops,
        family.end_of_calls or family.end_of_turn,
    ]
    first = _FIRST.get(name)
    special = sorted({*_SPECIAL.findall(family.template), *ends, *([first] if first else [])})
    special = ["<|endoftext|>", *(token for token in special if token != "<|endoftext|>")]
    if tokenizer is not None:
        tokenizer.add_tokens([AddedToken(token, special=True) for token in special])
    else:
        tokenizer = build_tokenizer(tuple(special))
    tokenizer.eos_token = family.end_of_turn
    if first:
        tokenizer.bos_token = first
    return ChatCodec(tokenizer, family)


def special_tokens(codec: ChatCodec) -> dict[int, str]:
    """Return the special tokens of a codec, by their ids."""
    added = codec.tokenizer.added_tokens_decoder
    return {number: token.content for number, token in added.items() if token.special}
