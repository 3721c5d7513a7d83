"""The tiny model is the same on every machine, and its tokenizer loses no text."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.models.tiny import CHATML, LLAMA, TAGS, build_tiny, build_tokenizer

TOKENIZERS = {special: build_tokenizer(special) for special in (CHATML, LLAMA)}


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_two_builds_are_equal_and_leave_the_random_state_alone(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert build_tiny(tmp_path / "one") == tmp_path / "one"
    assert torch.equal(torch.rand(3), expected)
    build_tiny(tmp_path / "two")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert "model.safetensors" in digests(tmp_path / "one")


def test_the_model_ends_its_turn_with_the_tokens_of_its_tokenizer(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = build_tiny(tmp_path)
    config: Any = AutoModelForCausalLM.from_pretrained(folder).config
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert config.vocab_size == len(tokenizer)
    assert tokenizer.convert_ids_to_tokens(config.eos_token_id) == "<|im_end|>"
    assert config.pad_token_id == tokenizer.pad_token_id != config.eos_token_id


@settings(max_examples=50)
@given(st.text())
def test_any_text_is_encoded_and_decoded_unchanged(text: str) -> None:
    for tokenizer in TOKENIZERS.values():
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("special", [CHATML, LLAMA], ids=["chatml", "llama"])
def test_special_tokens_and_tags_are_one_token_and_only_the_first_are_hidden(
    special: tuple[str, ...],
) -> None:
    tokenizer = TOKENIZERS[special]
    for text in (*special, *TAGS):
        (number,) = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode([number], skip_special_tokens=True) == (
            "" if text in special else text
        )
    assert tokenizer.pad_token != tokenizer.eos_token
    assert tokenizer.eos_token == ("<|eot_id|>" if special is LLAMA else "<|im_end|>")
