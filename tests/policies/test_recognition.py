"""A model's family is found by its own chat template; what is not known is refused, not guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparring.contracts.errors import UnknownFamily
from sparring.models.templates import known_digests, trl_template
from sparring.policies.families import TABLE
from sparring.policies.recognition import recognise, template_digest
from sparring.shipping.llama_cpp import VARIABLE


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
