"""Maps families to the server parsers that read their tool calls and thinking.

vLLM's names are those of version 0.32 (`vllm/tool_parsers`, `vllm/reasoning`);
`tests/shipping/test_call_parsers.py` looks them up if vLLM is installed. llama.cpp derives a parser
from the template; the same tests show which families' calls its server parses.
"""

from __future__ import annotations

from sparring.policies.families import Family
from sparring.policies.gemma_calls import GemmaCalls
from sparring.policies.harmony_calls import HarmonyCalls
from sparring.policies.python_calls import PythonCalls
from sparring.policies.text_calls import FunctionTags, KeyValueTags
from sparring.policies.tool_calls import BareJson, TaggedJson, ToolCallFormat

_VLLM_CALLS: tuple[tuple[ToolCallFormat, str], ...] = (
    (TaggedJson(), "hermes"),
    (BareJson(), "llama3_json"),
    (FunctionTags(), "qwen3_coder"),
    (KeyValueTags(), "glm45"),
    (PythonCalls(), "lfm2"),
    (HarmonyCalls(), "openai"),
    (GemmaCalls(), "gemma4"),
)
_VLLM_THINKING = {
    "qwen": "qwen3",
    "nemotron": "nemotron_v3",
    "glm": "glm45",
    "gpt-oss": "openai_gptoss",
    "gemma4": "gemma4",
}
_UNREAD_BY_LLAMA_CPP = (KeyValueTags(),)


def vllm_call_parser(family: Family) -> str:
    """Return vLLM's name for the parser of the family's tool calls; empty if none is known."""
    return next((name for form, name in _VLLM_CALLS if form == family.tool_calls), "")


def vllm_reasoning_parser(family: Family) -> str:
    """Return vLLM's name for the parser that separates the family's thinking from the answer; empty
    if none is known. Some parsers, such as qwen3, treat an answer without thinking as thinking, so
    they suit only models that think."""
    if family.thinking is None:
        return ""
    return next((name for at, name in _VLLM_THINKING.items() if family.name.startswith(at)), "")


def is_read_by_llama_cpp(family: Family) -> bool:
    """Return False if, in tests, llama.cpp's server did not parse the family's tool calls."""
    return family.tool_calls not in _UNREAD_BY_LLAMA_CPP
