"""Tokenizers are saved as other programs load them; the sampling of the proof is stated."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from sparring.models.tiny import build_tokenizer
from sparring.policies.families import family_named
from sparring.shipping.tokenizer_files import generation_config, write_tokenizer

TEMPLATE = family_named("qwen3").template


def test_a_saved_tokenizer_has_a_class_that_every_version_knows(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    write_tokenizer(tokenizer, tmp_path, TEMPLATE)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert "name_or_path" not in config
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "1 22 333 нещо <tool_call> <|im_end|>"
    assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
    for template in (config["chat_template"], (tmp_path / "chat_template.jinja").read_text()):
        assert "generation %}" not in template
        assert template == loaded.chat_template


@given(st.floats(0.01, 2.0), st.lists(st.integers(0, 9), min_size=1, unique=True))
def test_the_generation_config_has_every_stop_and_no_cut_off(
    temperature: float, stops: list[int]
) -> None:
    config = generation_config(temperature, stops, build_tokenizer_once())
    assert config["eos_token_id"] == stops
    assert (config["temperature"], config["do_sample"]) == (temperature, True)
    assert (config["top_k"], config["top_p"], config["min_p"]) == (0, 1.0, 0.0)


def test_greedy_sampling_is_stated_without_a_temperature_of_zero() -> None:
    config = generation_config(0.0, [1], build_tokenizer_once())
    assert (config["do_sample"], config["temperature"]) == (False, 1.0)


def build_tokenizer_once(made: list[object] = []) -> object:  # noqa: B006 - a cache
    if not made:
        made.append(build_tokenizer())
    return made[0]
