"""The commands name what was shipped, with the parser of the family and the context length."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparring.policies.families import Family, family_named
from sparring.policies.tool_calls import TaggedJson
from sparring.shipping.how_to_run import Runnable, agent_lines, commands, how_to_run
from tests.families import FORGETFUL

SHIPPED = Runnable(
    "porter", family_named("qwen3"), "Qwen/Qwen3-0.6B", True, 4096,
    has_adapter=True, has_merged=True, gguf="gguf/porter-q8_0.gguf", has_ollama=True,
)  # fmt: skip


def test_each_shipped_form_has_its_command() -> None:
    found = commands(SHIPPED)
    assert found["llama-server"].startswith("llama-server -m gguf/porter-q8_0.gguf --jinja")
    assert "--lora-modules porter=./adapter" in found["vLLM with the adapter"]
    assert "--chat-template ./chat_template.jinja" in found["vLLM with the adapter"]
    assert "ollama create porter -f Modelfile" in found["Ollama"]
    assert commands(Runnable("x", family_named("qwen3"), "b", True, 1)) == {}


def served(family: Family, **given: Any) -> Runnable:
    return Runnable("x", family, "b", True, 10, has_merged=True, **given)


def test_vllm_is_told_how_the_family_writes_calls_and_thinking() -> None:
    plain = commands(served(family_named("qwen3.5")))["vLLM"]
    assert "--enable-auto-tool-choice --tool-call-parser qwen3_coder" in plain
    assert "--reasoning-parser" not in plain
    thinking = commands(served(family_named("qwen3.5"), thinks=True))["vLLM"]
    assert "--reasoning-parser qwen3" in thinking
    without = commands(served(family_named("gemma3"), has_tools=False))["vLLM"]
    assert "--tool-call-parser" not in without


def test_what_a_server_cannot_read_is_said() -> None:
    strange = replace(FORGETFUL, tool_calls=TaggedJson("<<", ">>"))
    assert "--tool-call-parser" not in commands(served(strange))["vLLM"]
    text = how_to_run(served(strange, thinks=True))
    assert "no known parser for the tool calls of forgetful" in text
    assert "no known parser for the thinking of forgetful" in text
    assert "no known parser" not in how_to_run(served(strange, has_tools=False))
    glm = how_to_run(served(family_named("glm-4-moe"), gguf="gguf/x.gguf"))
    assert "did not parse the tool calls of glm-4-moe" in glm


@pytest.mark.parametrize(("rank", "option"), [(16, ""), (24, "--max-lora-rank 32 ")])
def test_vllm_is_told_of_a_rank_beyond_its_default(rank: int, option: str) -> None:
    shipped = Runnable(
        "x", family_named("qwen3"), "b/c", True, 10, has_adapter=True, adapter_rank=rank
    )
    command = commands(shipped)["vLLM with the adapter"]
    assert f"--enable-lora {option}--lora-modules x=./adapter" in command


def test_an_adapter_in_llama_cpp_is_given_its_template() -> None:
    text = how_to_run(SHIPPED)
    assert "convert_lora_to_gguf.py ./adapter --base Qwen/Qwen3-0.6B" in text
    assert "--lora adapter.gguf --jinja --chat-template-file chat_template.jinja" in text


def test_a_base_that_is_on_no_hub_is_not_named_as_if_it_were() -> None:
    shipped = Runnable("x", family_named("qwen3"), "tiny", False, 10, has_adapter=True)
    text = how_to_run(shipped)
    assert "FOLDER_OF_THE_BASE" in text
    assert "The base, tiny, is not on a hub" in text


def test_the_lines_for_the_agent_are_python_and_in_the_text() -> None:
    lines = agent_lines("porter", 8080)
    compile(lines, "lines", "exec")
    assert len(lines.splitlines()) == 3
    assert lines in how_to_run(SHIPPED)
    assert "openai<3" in how_to_run(SHIPPED)
