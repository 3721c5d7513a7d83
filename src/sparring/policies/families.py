"""Model families: their training template, tool-call format, and end of turn.

A family has one training template, which is prefix-preserving. A run records its digest
(`ChatCodec.digest`) and refuses to go on with another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from sparring.contracts.errors import UnknownFamily
from sparring.policies.tool_calls import BareJson, TaggedJson, ToolCallFormat


@dataclass(frozen=True, slots=True)
class Family:
    """How one family of models is spoken to.

    `template` is Jinja text as transformers uses it. `end_of_turn` is the token with which
    the model closes its turn; `also_stops` lists further tokens that end generation.
    """

    name: str
    template: str
    end_of_turn: str
    tool_calls: ToolCallFormat
    thinking: tuple[str, str] | None = None
    also_stops: tuple[str, ...] = ()


@cache
def ready_families() -> dict[str, Family]:
    """The families that Sparring knows by itself."""
    return {
        family.name: family
        for family in (
            Family(
                "qwen3",
                _template("qwen3"),
                "<|im_end|>",
                TaggedJson(),
                thinking=("<think>", "</think>"),
                also_stops=("<|endoftext|>",),
            ),
            Family(
                "qwen2.5",
                _template("qwen2_5"),
                "<|im_end|>",
                TaggedJson(),
                also_stops=("<|endoftext|>",),
            ),
            Family(
                "llama3",
                _template("llama3"),
                "<|eot_id|>",
                BareJson(),
                also_stops=("<|eom_id|>", "<|end_of_text|>"),
            ),
            Family(
                "smollm2",
                _template("smollm2"),
                "<|im_end|>",
                TaggedJson(),
                also_stops=("<|endoftext|>",),
            ),
        )
    }


# How models write calls that no ready family reads: Qwen3.5 and Coder, Mistral, Kimi, gpt-oss.
_FOREIGN_CALLS = ("<function=", "[TOOL_CALLS]", "<|tool_call_begin|>", "<|channel|>")


def family_named(name: str) -> Family:
    known = ready_families()
    if name not in known:
        raise UnknownFamily(f"there is no family {name!r}; ready are {', '.join(sorted(known))}")
    return known[name]


def recognise(model_type: str, tokenizer: Any) -> Family:
    """The family of a model, by its architecture and the special tokens it knows. Models of one
    architecture may write calls in different ways: where the model's own chat template shows
    another way than ours, there is no family for it."""
    known = ready_families()
    own_template = str(getattr(tokenizer, "chat_template", None) or "")
    if foreign := [mark for mark in _FOREIGN_CALLS if mark in own_template]:
        raise UnknownFamily(
            f"this model of type {model_type!r} writes tool calls with {foreign[0]}, as its own "
            "chat template says, and no ready family reads those; pass a Family of your own: "
            "docs/families.md shows how"
        )
    vocabulary = set(tokenizer.get_vocab())
    if model_type.startswith("qwen3"):
        return known["qwen3"]
    if model_type.startswith("qwen2"):
        return known["qwen2.5"]
    if model_type == "llama" and "<|start_header_id|>" in vocabulary:
        return known["llama3"]
    if model_type == "llama" and "<|im_start|>" in vocabulary:
        return known["smollm2"]
    raise UnknownFamily(
        f"nobody has declared how models of type {model_type!r} write tool calls. Pass `family=` "
        f"(one of {', '.join(sorted(known))}, or a Family of your own: docs/families.md shows how)"
    )


def _template(name: str) -> str:
    return (files("sparring.policies") / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
