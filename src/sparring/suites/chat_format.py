"""Converts messages in the format of OpenAI-compatible chat APIs to the SDK's input items."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparring.contracts.errors import SuiteError
from sparring.contracts.json import JsonObject


def to_input_items(messages: Sequence[Any], where: str) -> list[JsonObject]:
    """Return a conversation as input items: each tool call and each result becomes an item.

    Items that are already in the SDK's form are unchanged. `where` names the record in errors.
    """
    return [item for message in messages for item in _items(message, where)]


def _items(message: Any, where: str) -> Iterator[JsonObject]:
    if not isinstance(message, Mapping):
        raise SuiteError(
            f"the input of {where} contains a value of type {type(message).__name__}; an input "
            'is a text, or a list of messages such as {"role": "user", "content": "…"}'
        )
    role, calls = message.get("role"), message.get("tool_calls")
    if role == "tool":
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise SuiteError(f"{where} has a tool message without the `tool_call_id` of its call")
        output = message.get("content") or ""
        yield {"type": "function_call_output", "call_id": call_id, "output": output}
    elif role == "assistant" and calls:
        if message.get("content"):
            yield {"role": "assistant", "content": message["content"]}
        for call in calls:
            yield _call(call, where)
    elif "tool_calls" in message or "tool_call_id" in message:
        kept = {name: value for name, value in message.items() if name in ("role", "content")}
        yield kept
    else:
        yield dict(message)


def _call(call: Any, where: str) -> JsonObject:
    function: Any = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not isinstance(call.get("id"), str):
        raise SuiteError(
            f"{where} has a tool call without an id or a function name; write it as "
            '{"id": "…", "function": {"name": "…", "arguments": "{…}"}}'
        )
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call["id"], "name": name, "arguments": text}
