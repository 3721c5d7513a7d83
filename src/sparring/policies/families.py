"""Model families: their training templates, tool-call formats and end-of-turn tokens.

A family has one training template, which prints tool schemas in one form for all clients
(`models/templates`). Some templates belong to Sparring; others come with TRL and are changed to
print schemas in this form. A run records the digest of its template and tokenizer
(`ChatCodec.digest`) and cannot be resumed with another.

A model's family is found by its own chat template. Names and architectures are not enough: the
names of Qwen3 and Qwen3.5 share a prefix, but their call formats differ. An unknown template is
refused, and the error shows the difference from the most similar known template, if one is similar.
White space in templates is ignored.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sparring.contracts.errors import InvalidInput, MissingPackage, UnknownFamily
from sparring.installed import how_to_install, load_plugin, plugin_names
from sparring.models.templates import (
    known_digests,
    own_template,
    trl_template,
    with_schemas,
    without_generation_tags,
)
from sparring.policies.gemma_calls import GemmaCalls
from sparring.policies.harmony_calls import HarmonyCalls
from sparring.policies.python_calls import PythonCalls
from sparring.policies.text_calls import FunctionTags, KeyValueTags
from sparring.policies.tool_calls import BareJson, NoCalls, TaggedJson, ToolCallFormat

_SIMILAR = 0.6
_LINES_SHOWN = 12
_GENERATION_TAG = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")
GROUP = "sparring.families"
_WAY_OUT = (
    "if its format is that of a known family, name that family (--family, or train(family=…)); "
    "otherwise pass your own Family (docs/families.md lists the families and shows how to add one)"
)
_SWITCH = "{{%- set enable_thinking = {} -%}}"
_KEPT = "{#- the thinking of earlier turns is kept -#}"
_THINK = ("<think>", "</think>")
_TOOL = {"tool | tojson": "tool_json(tool)"}


@dataclass(frozen=True, slots=True)
class Family:
    """The chat format of one family of models.

    `template` is a Jinja chat template for transformers. `end_of_turn` is the token that ends the
    model's turn; `end_of_calls` ends a turn with tool calls, if that token differs; `also_stops`
    lists further tokens that end generation. `thinking` holds the opening and closing tag of the
    model's thinking. `can_switch_thinking` means that the template has `enable_thinking`.
    `keeps_thinking` means that later prompts contain the thinking of earlier turns; otherwise a
    turn after thinking starts a new row. `names_results` means that the template writes the tool's
    name with each result. `rewrites_answers` means that the template ends an earlier answer with
    another token than the model, so that a turn after an answer starts a new row.
    """

    name: str
    template: str
    end_of_turn: str
    tool_calls: ToolCallFormat | NoCalls
    thinking: tuple[str, str] | None = None
    also_stops: tuple[str, ...] = ()
    end_of_calls: str | None = None
    can_switch_thinking: bool = False
    keeps_thinking: bool = False
    names_results: bool = False
    rewrites_answers: bool = False

    def adapted(self, thinking: str = "auto", history_thinking: str = "drop") -> Family:
        """Return the family with thinking switched ("on", "off" or "auto"), and with the thinking
        of earlier turns kept or dropped. Both choices are stored in the template, which is saved
        with a trained model."""
        template = self.template.removeprefix(_KEPT)
        for state in ("true", "false"):
            template = template.removeprefix(_SWITCH.format(state))
        if thinking != "auto":
            if not self.can_switch_thinking:
                raise InvalidInput(
                    f"thinking of {self.name} cannot be switched {thinking}: its template has no "
                    "switch for thinking; use thinking=auto"
                )
            template = _SWITCH.format("true" if thinking == "on" else "false") + template
        keeps = history_thinking == "keep" and self.thinking is not None
        return replace(self, template=_KEPT * keeps + template, keeps_thinking=keeps)

    @property
    def has_tools(self) -> bool:
        """Whether agents can use tools with this family."""
        return not isinstance(self.tool_calls, NoCalls)

    @property
    def reads_tokens(self) -> bool:
        """Whether only special tokens, and not plain text that spells them, begin a call or a
        thought. The tool-call format then also parses the thinking."""
        return bool(getattr(self.tool_calls, "reads_tokens", False))


@dataclass(frozen=True, slots=True)
class BuiltInFamily:
    """One built-in family: its training template, and the templates by which it is recognised.

    `template` is the name of a file in `models/templates`, or `trl:NAME`; `changes` are
    replacements in TRL's text. `models` names the original templates of the family's models: `NAME`
    in TRL, or `NAME.jinja` in llama.cpp or Sparring. Tiers 1 and 2 support tools; tier 3 does not.
    The other fields are those of `Family`.
    """

    tier: int
    template: str
    models: tuple[str, ...]
    end_of_turn: str = "<|im_end|>"
    calls: ToolCallFormat | NoCalls = TaggedJson()  # noqa: RUF009 - frozen
    thinking: tuple[str, str] | None = None
    also_stops: tuple[str, ...] = ("<|endoftext|>",)
    end_of_calls: str | None = None
    can_switch_thinking: bool = False
    names_results: bool = False
    rewrites_answers: bool = False
    changes: tuple[tuple[str, str], ...] = ()


def _qwen_xml(name: str, *models: str, switch: bool = True) -> BuiltInFamily:
    return BuiltInFamily(
        1,
        f"trl:{name}_training",
        models or (name,),
        calls=FunctionTags(),
        thinking=_THINK,
        can_switch_thinking=switch,
        changes=tuple(_TOOL.items()),
    )


# Nemotron's templates print all other keys of a schema too: title, default, keys that clients add.
_NEMOTRON_SCHEMAS = (
    (
        "for json_key in json_dict if json_key not in handled_keys",
        "for json_key in ['enum', 'items', 'anyOf'] if json_key not in handled_keys and "
        "(json_dict[json_key] is mapping or json_key != 'items' and json_dict[json_key])",
    ),
    ("json_dict[json_key] | tojson | safe", "key_json(json_dict, json_key, {}, 4, '')"),
)
# LFM2.5's own template does not escape quotes and line breaks in arguments.
_PLAIN_TEXT = r"""{{- "'" + arg_value + "'" -}}"""
_QUOTED_TEXT = (
    r"""{{- "'" + (arg_value | replace("\\", "\\\\") | replace("'", "\\'") """
    r"""| replace("\n", "\\n") | replace("\r", "\\r")) + "'" -}}"""
)


def _nemotron(name: str) -> BuiltInFamily:
    return BuiltInFamily(
        1,
        f"trl:{name}_training",
        (name,),
        calls=FunctionTags(),
        thinking=_THINK,
        also_stops=("</s>", "<|endoftext|>"),
        can_switch_thinking=True,
        changes=_NEMOTRON_SCHEMAS,
    )


def _plain(name: str, end: str, *models: str, stops: tuple[str, ...] = ()) -> BuiltInFamily:
    return BuiltInFamily(3, f"trl:{name}", models, end, NoCalls(), also_stops=stops)


TABLE: Mapping[str, BuiltInFamily] = {
    "qwen2.5": BuiltInFamily(1, "qwen2_5", ("qwen2_5",)),
    "qwen3": BuiltInFamily(
        1, "qwen3", ("qwen3", "Qwen-Qwen3-0.6B.jinja"), thinking=_THINK, can_switch_thinking=True
    ),
    "qwen3-2507": BuiltInFamily(
        1,
        "trl:qwen3_instruct_2507_training",
        ("qwen3_instruct_2507",),
        changes=tuple(_TOOL.items()),
    ),
    "qwen3-vl": BuiltInFamily(
        1, "trl:qwen3_vl_training", ("qwen3_vl",), changes=tuple(_TOOL.items())
    ),
    "qwen3.5": _qwen_xml("qwen3_5_think"),
    "qwen3.5-small": _qwen_xml("qwen3_5_nothink"),
    "qwen3.6": _qwen_xml("qwen3_6"),
    "qwen3.8": _qwen_xml("qwen3_8"),
    "qwen3-coder": BuiltInFamily(2, "qwen3_coder", ("Qwen3-Coder.jinja",), calls=FunctionTags()),
    "gpt-oss": BuiltInFamily(
        1,
        "gpt_oss",
        ("gptoss",),
        "<|return|>",
        HarmonyCalls(),
        thinking=("<|channel|>analysis<|message|>", "<|end|>"),
        end_of_calls="<|call|>",
        names_results=True,
        rewrites_answers=True,
    ),
    "nemotron-3-nano": _nemotron("nemotron_3_nano"),
    "nemotron-3-super": _nemotron("nemotron_3_super"),
    "nemotron-3-ultra": _nemotron("nemotron_3_ultra"),
    "nemotron-3.5-lightning": _nemotron("nemotron_3_5_lightning"),
    "glm-4-moe": BuiltInFamily(
        1,
        "trl:glm4moe_training",
        ("glm4moe", "GLM-4.6.jinja"),
        "<|user|>",
        KeyValueTags(),
        thinking=_THINK,
        end_of_calls="<|observation|>",
        can_switch_thinking=True,
        changes=(("tool | tojson(ensure_ascii=False)", "tool_json(tool)"),),
    ),
    "lfm2": BuiltInFamily(
        1,
        "trl:lfm2_v2_training",
        ("lfm2", "lfm2_v2"),
        calls=PythonCalls(),
        changes=tuple(_TOOL.items()),
    ),
    "lfm2.5": BuiltInFamily(
        2,
        "trl:lfm2_2_5_v2",
        ("lfm2_2_5", "lfm2_2_5_v2"),
        calls=PythonCalls(),
        thinking=_THINK,
        changes=(*_TOOL.items(), (_PLAIN_TEXT, _QUOTED_TEXT)),
    ),
    "llama3": BuiltInFamily(
        2,
        "llama3",
        ("llama3_1", "llama3_2"),
        "<|eot_id|>",
        BareJson(),
        also_stops=("<|eom_id|>", "<|end_of_text|>"),
    ),
    "gemma4": BuiltInFamily(
        2,
        "gemma4",
        ("gemma4", "gemma4_v3", "gemma4_v4", "gemma4_v5"),
        "<turn|>",
        GemmaCalls(),
        thinking=("<|channel>thought\n", "<channel|>"),
        also_stops=("<eos>",),
        end_of_calls="<|tool_response>",
        can_switch_thinking=True,
        names_results=True,
    ),
    "smollm2": BuiltInFamily(2, "smollm2", ("SmolLM2-Instruct.jinja",)),
    "llama3-plain": _plain("llama3_training", "<|eot_id|>", "llama3", stops=("<|end_of_text|>",)),
    "gemma": _plain("gemma_training", "<end_of_turn>", "gemma", stops=("<eos>",)),
    "gemma3": _plain("gemma3_training", "<end_of_turn>", "gemma3", stops=("<eos>",)),
    "cohere": _plain("cohere_training", "<|END_OF_TURN_TOKEN|>", "cohere"),
    "cohere2": BuiltInFamily(
        3,
        "trl:cohere2_training",
        ("cohere2",),
        "<|END_OF_TURN_TOKEN|>",
        NoCalls("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        also_stops=(),
    ),
    "deepseek-v3": BuiltInFamily(
        3,
        "trl:deepseekv3_training",
        ("deepseekv3",),
        "<｜end▁of▁sentence｜>",
        NoCalls(),
        thinking=_THINK,
        also_stops=(),
    ),
    "phi3": _plain("phi3_training", "<|end|>", "phi3", stops=("<|endoftext|>",)),
    "phi3.5": _plain("phi3_5_training", "<|end|>", "phi3_5", stops=("<|endoftext|>",)),
}


def family_named(name: str) -> Family:
    """Return a built-in family, or a family that an installed package provides as a plugin. Raises
    UnknownFamily for other names."""
    if name in TABLE:
        return _built_in(name)
    if isinstance(plugin := load_plugin(GROUP, name), Family):
        return plugin
    known = ", ".join(sorted([*TABLE, *plugin_names(GROUP)]))
    raise UnknownFamily(f"unknown family {name!r}; use one of {known}")


@cache
def _built_in(name: str) -> Family:
    entry = TABLE[name]
    return Family(
        name,
        _training_template(name, entry),
        entry.end_of_turn,
        entry.calls,
        entry.thinking,
        entry.also_stops,
        entry.end_of_calls,
        entry.can_switch_thinking,
        names_results=entry.names_results,
        rewrites_answers=entry.rewrites_answers,
    )


def _training_template(name: str, entry: BuiltInFamily) -> str:
    source, _, trl_name = entry.template.partition(":")
    if source != "trl":
        return own_template(entry.template)
    text = trl_template(trl_name)
    if text is None:
        raise MissingPackage(
            f"the training template of {name} comes with TRL, which is not installed: "
            f"{how_to_install('train')}"
        )
    for old, new in entry.changes:
        if old not in text:
            raise MissingPackage(f"TRL's template {trl_name} has no {old!r}; install trl 1.16")
        text = text.replace(old, new)
    return with_schemas(text)


def recognise(tokenizer: Any) -> Family:
    """Return the family whose models have this tokenizer's chat template. Raises UnknownFamily if
    there is none."""
    template = template_of(tokenizer)
    if not template:
        raise UnknownFamily(
            f"this model has no chat template, so its family is unknown; {_WAY_OUT}"
        )
    digest = template_digest(template)
    if name := known_templates().get(digest):
        return family_named(name)
    if trained := _training_templates().get(digest):
        return trained
    raise UnknownFamily(
        f"Sparring does not know the chat template of this model; {_nearest(template)}{_WAY_OUT}"
    )


def template_of(tokenizer: Any) -> str:
    """Return the chat template of a tokenizer; if it has several, its default template. Empty if it
    has none."""
    template = getattr(tokenizer, "chat_template", None) or ""
    if isinstance(template, dict):
        template = template.get("default") or next(iter(template.values()), "")
    return str(template)


def template_digest(template: str) -> str:
    """Return the SHA-256 of a template without white space and `generation` tags, so that
    reformatted copies of a template have the same digest."""
    text = "".join(_GENERATION_TAG.sub("", template).split())
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def known_templates() -> dict[str, str]:
    """Return a map from the digests of models' own templates to the names of their families."""
    return {digest: name for name, models in known_digests().items() for digest in models.values()}


@cache
def _training_templates() -> dict[str, Family]:
    """Return a map from the digests of training templates, which trained models come with, to their
    families."""
    found: dict[str, Family] = {}
    for name in TABLE:
        try:
            family = family_named(name)
        except MissingPackage:
            continue
        modes = ("auto", "on", "off") if family.can_switch_thinking else ("auto",)
        for thinking, history in itertools.product(modes, ("drop", "keep")):
            adapted = family.adapted(thinking, history)
            chosen = family if adapted == family else adapted
            shipped = without_generation_tags(adapted.template)
            found |= {template_digest(each): chosen for each in (adapted.template, shipped)}
    return found


def _nearest(template: str) -> str:
    """Describe the difference from the most similar known template; empty if none is similar."""
    lines = template.splitlines()
    best, name, original = _SIMILAR, "", []
    for candidate, text in _known_texts():
        known = text.splitlines()
        matcher = difflib.SequenceMatcher(None, known, lines, autojunk=False)
        if matcher.real_quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, name, original = ratio, candidate, known
    if not name:
        return ""
    diff = [
        line
        for line in difflib.unified_diff(original, lines, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    shown = "\n".join(line[:160] for line in diff[:_LINES_SHOWN])
    more = f"\n… and {len(diff) - _LINES_SHOWN} more lines" if len(diff) > _LINES_SHOWN else ""
    return f"it differs from the template of {name} in these lines:\n{shown}{more}\n"


def _known_texts() -> Iterator[tuple[str, str]]:
    for name, entry in TABLE.items():
        for model in entry.models:
            if text := trl_template(model):
                yield name, text
