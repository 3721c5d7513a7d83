"""Converts replies into SDK items, and SDK items into messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
)

from sparring.contracts.errors import Untrainable
from sparring.contracts.policies import Reply
from sparring.contracts.rollouts import Message, RequestedCall

Item = Mapping[str, Any]
_TAG = "sparring_turn"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def turn_of(item: Item) -> int | None:
    """Return the turn that produced this item; None if Sparring's model did not produce it."""
    data = item.get("provider_data")
    return data.get(_TAG) if isinstance(data, Mapping) else None


def to_items(reply: Reply, calls: Sequence[RequestedCall], turn: int) -> list[ResponseOutputItem]:
    """Return a reply as SDK items tagged with the turn. The SDK includes the items, with their
    tags, in the next turn's input, where a tag identifies the row of the sampled tokens."""
    tag: dict[str, Any] = {"provider_data": {_TAG: turn}}
    items: list[ResponseOutputItem] = []
    if reply.content or not calls:
        text = ResponseOutputText(type="output_text", text=reply.content, annotations=[])
        items.append(
            ResponseOutputMessage(
                id=f"msg_{turn}",
                type="message",
                role="assistant",
                status="completed",
                content=[text],
                **tag,
            )
        )
    items += [
        ResponseFunctionToolCall(
            id=f"fc_{call.id}",
            type="function_call",
            call_id=call.id,
            name=call.tool,
            arguments=call.arguments,
            status="completed",
            **tag,
        )
        for call in calls
    ]
    return items


def to_messages(items: Sequence[Item]) -> list[Message]:
    """Return the items as messages. A call joins an assistant message that directly precedes it.

    Skips reasoning items. Raises Untrainable for other item types, unknown roles, and parts that
    are not text.
    """
    messages: list[Message] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == "function_call":
            call = RequestedCall(item["call_id"], item["name"], item["arguments"])
            last = messages[-1] if messages else None
            if last is not None and last.role == "assistant":
                messages[-1] = Message("assistant", last.content, calls=(*last.calls, call))
            else:
                messages.append(Message("assistant", "", calls=(call,)))
        elif kind == "function_call_output":
            messages.append(Message("tool", text_of(item["output"]), call_id=item["call_id"]))
        elif kind == "message":
            role = _ROLES.get(str(item["role"]))
            if role is None:
                raise Untrainable(
                    f"a message has the unknown role {item['role']!r}; use {', '.join(_ROLES)}"
                )
            messages.append(Message(role, text_of(item.get("content") or "")))
        elif kind != "reasoning":
            raise Untrainable(
                f"the conversation has an item of type {kind!r}, which a text model cannot "
                "read; give the agent function tools that return text"
            )
    return messages


def text_of(content: Any) -> str:
    """Return the text of a message or tool result, given as text or as a list of parts."""
    if isinstance(content, str):
        return content
    parts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise Untrainable(f"a message has a part of type {kind!r}; use text parts only")
        parts.append(text)
    return "".join(parts)
