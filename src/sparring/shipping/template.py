"""Makes the chat template of a shipped model from the training template, and prepares messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sparring.contracts.chat import ChatMessage, chat_message
from sparring.contracts.rollouts import Message
from sparring.models.templates import without_generation_tags

# Variables that servers set and training does not: llama.cpp passes today's date.
_SERVER_VARIABLES = ("date_string",)
_THINKING_OFF = "{%- set enable_thinking = false -%}"
_PROBE = (
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
)


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
