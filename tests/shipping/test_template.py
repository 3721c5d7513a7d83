"""The shipped template renders what the training template renders, in every Jinja."""

from __future__ import annotations

import json
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sparring.models.tiny import CHATML, LLAMA, build_tokenizer
from sparring.policies.families import family_named
from sparring.policies.recognition import recognise
from sparring.shipping.template import chat_messages, shipped_template, template_messages
from tests.policies.family_codecs import WITH_TOOLS, byte_level_codec_of
from tests.shipping.made import TOOLS, chats

FAMILIES = ("qwen3", "qwen2.5", "llama3", "smollm2")


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
