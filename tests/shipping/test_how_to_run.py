"""The commands name what was shipped, with the parser of the family and the context length."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.rollouts import Message
from sparring.policies.families import TABLE, Family, family_named
from sparring.policies.tool_calls import TaggedJson
from sparring.shipping.how_to_run import (
    Runnable,
    agent_lines,
    client_lines,
    commands,
    how_to_run,
    is_read_by_llama_cpp,
    sdk_lines,
    vllm_call_parser,
    vllm_reasoning_parser,
)
from sparring.shipping.llama_cpp import LlamaServer, find_llama_cpp, served
from sparring.shipping.template import chat_messages
from tests.families import FORGETFUL
from tests.policies.family_codecs import WITH_TOOLS, WITHOUT_TOOLS, byte_level_codec_of
from tests.shipping.made import CALL, TOOLS, chats, has_server
from tests.shipping.parrot import write_parrot

VLLM = Path(
    os.environ.get(
        "SPARRING_VLLM_PYTHON", Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
    )
)
PARSERS = {
    "hermes": ["qwen2.5", "qwen3", "qwen3-2507", "qwen3-vl", "smollm2"],
    "qwen3_coder": [
        "qwen3.5", "qwen3.5-small", "qwen3.6", "qwen3.8", "qwen3-coder", "nemotron-3-nano",
        "nemotron-3-super", "nemotron-3-ultra", "nemotron-3.5-lightning",
    ],
    "glm45": ["glm-4-moe"],
    "lfm2": ["lfm2", "lfm2.5"],
    "llama3_json": ["llama3"],
    "openai": ["gpt-oss"],
    "gemma4": ["gemma4"],
    "": WITHOUT_TOOLS,
}  # fmt: skip
QUICK = ("qwen3", "qwen3.5-small", "lfm2", "glm-4-moe")
served_only = pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed")
SHIPPED = Runnable(
    "porter", family_named("qwen3"), "Qwen/Qwen3-0.6B", True, 4096,
    has_adapter=True, has_merged=True, gguf="gguf/porter-q8_0.gguf", has_ollama=True,
)  # fmt: skip


@pytest.mark.parametrize("examples", [0, 2])
@pytest.mark.parametrize("has_tools", [True, False])
@pytest.mark.parametrize("has_instructions", [True, False])
def test_the_lines_send_all_that_agent_json_holds(
    examples: int, has_tools: bool, has_instructions: bool
) -> None:
    shipped = replace(
        SHIPPED, examples=examples, has_tools=has_tools, has_instructions=has_instructions
    )
    lines, sdk = client_lines(shipped), sdk_lines(shipped)
    for each in (lines, sdk):
        compile(each, "how_to_run.md", "exec")
        assert each in how_to_run(shipped)
    assert ('*shipped["examples"]' in lines) == bool(examples) == ("*examples, question" in sdk)
    assert ('tools=agent["tools"]' in lines) == has_tools
    assert ('agent["instructions"]' in lines) == has_instructions
    assert ("The Modelfile does not hold the worked examples" in how_to_run(shipped)) == bool(
        examples
    )


def test_every_family_has_vllms_parser_of_its_format() -> None:
    assert sorted(name for names in PARSERS.values() for name in names) == sorted(TABLE)
    for parser, names in PARSERS.items():
        assert {vllm_call_parser(family_named(name)) for name in names} == {parser}


def test_thinking_is_parsed_where_vllm_knows_the_family() -> None:
    found = {name: vllm_reasoning_parser(family_named(name)) for name in TABLE}
    assert found["qwen3"] == found["qwen3.8"] == "qwen3"
    assert found["nemotron-3-nano"] == "nemotron_v3"
    assert found["glm-4-moe"] == "glm45"
    assert found["gpt-oss"] == "openai_gptoss"
    assert found["gemma4"] == "gemma4"
    assert not found["lfm2.5"]  # thinks, and vLLM names no parser for it
    assert not found["qwen2.5"]  # does not think


@pytest.mark.vllm
@pytest.mark.skipif(not VLLM.exists(), reason=f"no vLLM environment at {VLLM}")
def test_vllm_knows_these_names() -> None:
    script = (
        "import json, vllm.reasoning as r, vllm.tool_parsers as t; "
        "print(json.dumps([list(t._TOOL_PARSERS_TO_REGISTER), "
        "list(r._REASONING_PARSERS_TO_REGISTER)]))"
    )
    done = subprocess.run([VLLM, "-c", script], capture_output=True, text=True, check=True)
    calls, reasoning = json.loads(done.stdout.splitlines()[-1])
    families = [family_named(name) for name in TABLE]
    assert {vllm_call_parser(each) for each in families} - {""} <= set(calls)
    assert {vllm_reasoning_parser(each) for each in families} - {""} <= set(reasoning)


@served_only
@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly)
        for name in WITH_TOOLS
    ],
)
def test_llama_cpp_renders_the_familys_prompts_and_reads_its_calls(
    name: str, tmp_path: Path
) -> None:
    codec = byte_level_codec_of(name)
    ask = chats()[0]
    prompt = codec.encode_prompt(ask, TOOLS).ids
    reply = codec.decode(codec.encode_reply(Message("assistant", "", calls=(CALL,))))
    parrot = write_parrot(codec, prompt[-1], reply, tmp_path)
    with served(find_llama_cpp(), parrot, tmp_path / "log", context=8192) as server:
        for chat in chats():
            trained = codec.decode(codec.encode_prompt(chat, TOOLS).ids)
            assert server.render(chat_messages(chat), list(TOOLS)) == trained
        if is_read_by_llama_cpp(codec.family):
            assert calls_of(server, ask) == [("search", json.loads(CALL.arguments))]
        else:
            with pytest.raises(Exception, match="does not match the expected"):
                calls_of(server, ask)


def calls_of(server: LlamaServer, chat: tuple[Message, ...]) -> list[tuple[str, Any]]:
    """The calls that the server reads from the parrot's reply to a chat."""
    body = {
        "model": server.model, "messages": chat_messages(chat), "tools": list(TOOLS),
        "temperature": 0, "max_tokens": 64,
    }  # fmt: skip
    message = server.post("/v1/chat/completions", body)["choices"][0]["message"]
    functions = [each["function"] for each in message.get("tool_calls") or []]
    return [(each["name"], json.loads(each["arguments"])) for each in functions]


def test_each_shipped_form_has_its_command() -> None:
    found = commands(SHIPPED)
    assert found["llama-server"].startswith("llama-server -m gguf/porter-q8_0.gguf --jinja")
    assert "--lora-modules porter=./adapter" in found["vLLM with the adapter"]
    assert "--chat-template ./chat_template.jinja" in found["vLLM with the adapter"]
    assert "ollama create porter -f Modelfile" in found["Ollama"]
    assert commands(Runnable("x", family_named("qwen3"), "b", True, 1)) == {}


def runnable(family: Family, **given: Any) -> Runnable:
    return Runnable("x", family, "b", True, 10, has_merged=True, **given)


def test_the_command_of_vllm_has_the_familys_parsers() -> None:
    plain = commands(runnable(family_named("qwen3.5")))["vLLM"]
    assert "--enable-auto-tool-choice --tool-call-parser qwen3_coder" in plain
    assert "--reasoning-parser" not in plain
    thinking = commands(runnable(family_named("qwen3.5"), thinks=True))["vLLM"]
    assert "--reasoning-parser qwen3" in thinking
    without = commands(runnable(family_named("gemma3"), has_tools=False))["vLLM"]
    assert "--tool-call-parser" not in without


def test_how_to_run_names_formats_that_a_server_cannot_parse() -> None:
    strange = replace(FORGETFUL, tool_calls=TaggedJson("<<", ">>"))
    assert "--tool-call-parser" not in commands(runnable(strange))["vLLM"]
    text = how_to_run(runnable(strange, thinks=True))
    assert "no known parser for the tool calls of forgetful" in text
    assert "no known parser for the thinking of forgetful" in text
    assert "no known parser" not in how_to_run(runnable(strange, has_tools=False))
    glm = how_to_run(runnable(family_named("glm-4-moe"), gguf="gguf/x.gguf"))
    assert "did not parse the tool calls of glm-4-moe" in glm


@pytest.mark.parametrize(("rank", "option"), [(16, ""), (24, "--max-lora-rank 32 ")])
def test_the_command_of_vllm_has_a_rank_beyond_its_default(rank: int, option: str) -> None:
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
