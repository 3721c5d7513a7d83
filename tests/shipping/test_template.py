"""The shipped template renders what the training template renders, in every Jinja."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from transformers import AutoTokenizer

from sparring.models.tiny import CHATML, LLAMA, build_tokenizer
from sparring.policies.families import family_named, recognise
from sparring.shipping.template import (
    chat_messages,
    generation_config,
    shipped_template,
    template_messages,
    write_tokenizer,
)
from tests.policies.family_codecs import WITH_TOOLS, byte_level_codec_of
from tests.shipping.made import TOOLS, chats

FAMILIES = ("qwen3", "qwen2.5", "llama3", "smollm2")
TEMPLATE = family_named("qwen3").template


def plain_jinja(template: str, **values: Any) -> str:
    """Jinja2 with what servers add to it, and nothing of transformers."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def tojson(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment.filters["tojson"] = tojson
    return environment.from_string(template).render(add_generation_prompt=True, **values)


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("name", FAMILIES)
def test_renderings_are_equal_byte_for_byte(name: str, number: int) -> None:
    family = family_named(name)
    tokenizer = build_tokenizer(LLAMA if name == "llama3" else CHATML)
    messages = template_messages(chat_messages(chats()[number]))
    trained = tokenizer.apply_chat_template(
        messages, tools=list(TOOLS), chat_template=family.template, tokenize=False,
        add_generation_prompt=True,
    )  # fmt: skip
    shipped = shipped_template(family.template)
    values = {"messages": messages, "tools": list(TOOLS), "bos_token": tokenizer.bos_token or ""}
    assert plain_jinja(shipped, **values) == trained
    assert plain_jinja(shipped, date_string="17 Nov 2026", **values) == trained


@pytest.mark.parametrize("name", FAMILIES)
def test_no_tag_is_left_that_only_transformers_knows(name: str) -> None:
    template = family_named(name).template
    with pytest.raises(jinja2.TemplateSyntaxError):
        jinja2.Environment().parse(template)
    jinja2.Environment().parse(shipped_template(template))


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_server_that_switches_thinking_on_renders_the_prompt_of_the_training(name: str) -> None:
    """llama.cpp passes `enable_thinking` with every request."""
    codec = byte_level_codec_of(name)

    def render(template: str, **values: Any) -> str:
        messages = template_messages(chat_messages(chats()[6]))
        text = codec.tokenizer.apply_chat_template(
            messages, tools=list(TOOLS), chat_template=template, tokenize=False,
            add_generation_prompt=True, **values,
        )  # fmt: skip
        return str(text)

    template = codec.family.template
    assert render(shipped_template(template), enable_thinking=True) == render(template)


def test_a_shipped_template_is_recognised_as_its_family() -> None:
    for name in WITH_TOOLS:
        tokenizer = type("Tokenizer", (), {})()
        tokenizer.chat_template = shipped_template(family_named(name).template)
        assert recognise(tokenizer).name == name


def test_whitespace_control_is_kept() -> None:
    template = "a \n{%- generation -%}\n b \n{%- endgeneration -%}\n c"
    assert jinja2.Environment().from_string(shipped_template(template)).render() == "abc"


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
