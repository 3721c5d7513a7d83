"""Writes the chat template of a shipped model, its tokenizer files and its generation config, as
other programs load them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparring.contracts.chat import ChatMessage, chat_message
from sparring.contracts.rollouts import Message
from sparring.models.templates import without_generation_tags
from sparring.run_folder.files import read_json, write_json, write_text

# Variables that servers set and training does not: llama.cpp passes today's date.
_SERVER_VARIABLES = ("date_string",)
_THINKING_OFF = "{%- set enable_thinking = false -%}"
_PROBE = (
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
)
TEMPLATE = "chat_template.jinja"
SAMPLING = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


def shipped_template(template: str) -> str:
    """Return a training template that every Jinja implementation renders as in training: without
    `{% generation %}`, and with fixed values for the variables that only servers set."""
    template = _with_fixed_thinking(without_generation_tags(template))
    for name in _SERVER_VARIABLES:
        if name in template:
            template = f"{{%- set {name} = none -%}}\n{template}"
    return template


def _with_fixed_thinking(template: str) -> str:
    """Fix `enable_thinking` to false in a template whose default is not to think: llama.cpp enables
    thinking unless a request disables it, and the prompt would differ from training."""
    if "enable_thinking" not in template:
        return template
    trained = _render(template)
    if _render(template, enable_thinking=True) == trained:
        return template
    fixed = _THINKING_OFF + template
    return fixed if _render(fixed, enable_thinking=True) == trained else template


def _render(template: str, **values: Any) -> str:
    """Return a short chat as servers render it, or the text of the error."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    try:
        parsed = environment.from_string(template)
        return parsed.render(messages=_PROBE, add_generation_prompt=True, **values)
    except jinja2.TemplateError as error:
        return f"error: {error}"


def chat_messages(messages: Sequence[Message]) -> list[ChatMessage]:
    """Return messages in the form that servers receive; call arguments are JSON text."""
    return [_chat_message(message) for message in messages]


def _chat_message(message: Message) -> ChatMessage:
    chat = chat_message(message)
    if message.thinking:
        chat["reasoning_content"] = message.thinking
    return chat


def template_messages(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return chat messages in the form that templates receive; call arguments are objects."""
    prepared = []
    for message in messages:
        copy = message.copy()
        if calls := message.get("tool_calls"):
            copy["tool_calls"] = [
                {
                    **call,
                    "function": {
                        "name": call["function"]["name"],
                        "arguments": json.loads(call["function"]["arguments"]),
                    },
                }
                for call in calls
            ]
        prepared.append(copy)
    return prepared


def write_tokenizer(tokenizer: Any, folder: Path, template: str) -> None:
    """Write a tokenizer with a template that every Jinja implementation renders, and with a
    tokenizer class that exists in transformers 4 and 5."""
    tokenizer.save_pretrained(folder)
    config = read_json(folder / "tokenizer_config.json")
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    for name in (
        "name_or_path",
        "backend",
        "is_local",
        "local_files_only",
    ):  # specific to this machine or version
        config.pop(name, None)
    shipped = shipped_template(template)
    config["chat_template"] = shipped  # for loaders that do not read chat_template.jinja
    write_json(folder / "tokenizer_config.json", config)
    write_text(folder / TEMPLATE, shipped)


def generation_config(
    temperature: float, stop_ids: Sequence[int], tokenizer: Any
) -> dict[str, Any]:
    """Return the generation config: sampling as in the proof, and all tokens that end a turn. It
    sets every sampling parameter, because servers have other defaults."""
    config: dict[str, Any] = {
        "do_sample": temperature > 0,
        "temperature": temperature if temperature > 0 else 1.0,
        **SAMPLING,
        "eos_token_id": list(stop_ids),
    }
    for name in ("pad_token_id", "bos_token_id"):
        if (number := getattr(tokenizer, name, None)) is not None:
            config[name] = int(number)
    return config
