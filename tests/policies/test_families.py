"""Families are found by their names, and carry how the model thinks in their template."""

from __future__ import annotations

import pytest

from sparring.contracts.errors import InvalidInput, MissingPackage, UnknownFamily
from sparring.contracts.rollouts import Message
from sparring.policies import families
from sparring.policies.codec import ChatCodec
from sparring.policies.families import TABLE, family_named
from sparring.policies.recognition import recognise
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
    with pytest.raises(MissingPackage, match=r"lfm2 comes with TRL.*sparring\[train\]"):
        made_anew("lfm2")
    monkeypatch.setattr(families, "trl_template", lambda name: "{{ other }}")
    with pytest.raises(MissingPackage, match=r"has no 'tool \| tojson'"):
        made_anew("lfm2")
