"""Families are found by their names, and carry how the model thinks in their template."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput, MissingPackage, UnknownFamily
from sparring.contracts.rollouts import Message
from sparring.models.templates import known_digests, trl_template
from sparring.policies import families
from sparring.policies.codec import ChatCodec
from sparring.policies.families import TABLE, family_named, recognise, template_digest
from sparring.shipping.llama_cpp import VARIABLE
from tests.policies.family_codecs import codec_of

QUESTION = [Message("user", "Hi")]


@pytest.mark.parametrize("name", TABLE)
def test_each_family_is_found_by_its_name_and_ends_its_turns_as_its_template_does(
    name: str,
) -> None:
    family = family_named(name)
    assert family_named(name) is family
    assert family.end_of_turn not in family.also_stops
    turn = codec_of(name).encode_reply(Message("assistant", "Hello."))
    assert codec_of(name).decode(turn).endswith(family.end_of_turn)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownFamily, match=r"'qwen9'; use one of .*llama3, .*qwen2\.5, qwen3, "):
        family_named("qwen9")


def test_thinking_can_be_switched_off_and_on_again() -> None:
    codec = codec_of("qwen3")

    def prompt(mode: str) -> str:
        adapted = ChatCodec(codec.tokenizer, codec.family.adapted(mode))
        return adapted.decode(adapted.encode_prompt(QUESTION, []).ids)

    assert prompt("off").endswith("<think>\n\n</think>\n\n")
    assert prompt("on") == prompt("auto") != prompt("off")


def test_a_family_is_adapted_from_its_own_template_however_often() -> None:
    family = family_named("qwen3")
    twice = family.adapted("off", "keep").adapted("on")
    assert twice == family.adapted("on")
    assert twice.adapted() == family


def test_a_family_without_a_switch_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"thinking of smollm2 cannot be switched off"):
        family_named("smollm2").adapted("off")


def test_the_choice_goes_with_the_template_of_a_trained_model() -> None:
    tokenizer = codec_of("qwen3").tokenizer
    tokenizer.chat_template = family_named("qwen3").adapted("off", "keep").template
    try:
        found = recognise(tokenizer)
    finally:
        tokenizer.chat_template = None
    assert (found.name, found.keeps_thinking) == ("qwen3", True)
    assert "enable_thinking = false" in found.template


def test_a_model_of_a_family_without_tools_refuses_tools() -> None:
    codec = codec_of("gemma3")
    codec.encode_prompt(QUESTION, [])
    with pytest.raises(UnknownFamily, match="gemma3 cannot use tools"):
        codec.encode_prompt(QUESTION, [{"type": "function", "function": {"name": "f"}}])


def test_a_template_of_trl_needs_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    made_anew = families._built_in.__wrapped__
    monkeypatch.setattr(families, "trl_template", lambda name: None)
    assert made_anew("qwen3").name == "qwen3"
    with pytest.raises(MissingPackage, match=r"lfm2 comes with TRL.*pip install .*\[train\]"):
        made_anew("lfm2")
    monkeypatch.setattr(families, "trl_template", lambda name: "{{ other }}")
    with pytest.raises(MissingPackage, match=r"has no 'tool \| tojson'"):
        made_anew("lfm2")


class Tokenizer:
    def __init__(self, template: str | dict[str, str] | None) -> None:
        self.chat_template = template


def test_every_original_that_trl_ships_is_known_by_its_digest() -> None:
    for name, entry in TABLE.items():
        assert set(known_digests()[name]) == set(entry.models)
        for model in entry.models:
            if text := trl_template(model):
                assert known_digests()[name][model] == template_digest(text), model


def test_white_space_and_generation_tags_do_not_matter() -> None:
    text = trl_template("qwen3_5_think") or ""
    assert recognise(Tokenizer("\n\n" + text.replace("\n", "  \r\n"))).name == "qwen3.5"
    tagged = "{% generation %}" + text + "{%- endgeneration -%}"
    assert recognise(Tokenizer(tagged)).name == "qwen3.5"


def test_a_tokenizer_with_several_templates_is_recognised_by_its_default() -> None:
    several = {"rag": "{{ other }}", "default": trl_template("qwen2_5") or ""}
    assert recognise(Tokenizer(several)).name == "qwen2.5"


@pytest.mark.parametrize("name", ["muse_glimmer", "gemma4_v2", "llava_next", "qwen2_5_vl"])
def test_a_model_of_no_family_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(UnknownFamily, match=r"--family.*docs/families\.md"):
        recognise(Tokenizer(trl_template(name)))


def test_a_near_miss_is_refused_with_the_difference() -> None:
    text = trl_template("qwen3") or ""
    changed = text.replace("'<|im_start|>assistant\\n'", "'<|im_start|>helper\\n'")
    assert changed != text
    with pytest.raises(UnknownFamily) as refused:
        recognise(Tokenizer(changed))
    assert "it differs from the template of qwen3 in these lines:\n-" in str(refused.value)
    assert "helper" in str(refused.value)


@pytest.mark.parametrize("template", [None, "", {}])
def test_a_model_without_a_template_is_refused(template: str | dict[str, str] | None) -> None:
    with pytest.raises(UnknownFamily, match="has no chat template"):
        recognise(Tokenizer(template))


# ---------------------------------------------------------------------- beside llama.cpp's own

ORIGINALS = {
    "GLM-4.6": "glm-4-moe",
    "LFM2-8B-A1B": "lfm2",
    "LFM2.5-8B-A1B": "lfm2.5",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron-3-nano",
    "Qwen-Qwen2.5-7B-Instruct": "qwen2.5",
    "Qwen-Qwen3-0.6B": "qwen3",
    "Qwen3-Coder": "qwen3-coder",
    "Qwen3.5-4B": "qwen3.5",
    "google-gemma-2-2b-it": "gemma",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3",
    "meta-llama-Llama-3.3-70B-Instruct": "llama3",
    "microsoft-Phi-3.5-mini-instruct": "phi3.5",
    "openai-gpt-oss-120b": "gpt-oss",
}


@pytest.mark.nightly
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} has no llama.cpp")
def test_of_the_templates_that_llama_cpp_collects_those_of_known_families_are_recognised() -> None:
    found = {}
    for file in (Path(os.environ[VARIABLE]) / "models" / "templates").glob("*.jinja"):
        try:
            found[file.stem] = recognise(Tokenizer(file.read_text(encoding="utf-8"))).name
        except UnknownFamily:
            continue
    assert found == ORIGINALS
