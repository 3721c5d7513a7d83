"""The wire format of `/v1/messages`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from sparring.contracts.rollouts import Message, RequestedCall
from sparring.gateway.wire import (
    Body,
    FinishReason,
    ModelReply,
    Refused,
    WireCall,
    chosen_tool,
    event,
    function_schema,
    is_set,
    list_field,
    object_of,
    overridden,
    refuse,
    stop_sequences,
    text_field,
    text_of,
    token_limit,
)
from sparring.player.recorder import ModelCall

_UNSUPPORTED = {
    "mcp_servers": "the agent must run its tools itself",
    "container": "the agent must run its tools itself",
}
_STOP_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
}
_ERROR_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    410: "session_ended",
    413: "request_too_large",
}


class AnthropicMessages:
    """Anthropic's Messages API."""

    def read(self, body: Body, session: Any) -> WireCall:
        """Parse a request; raises Refused for an invalid or unsupported field."""
        refuse(body, _UNSUPPORTED)
        model = text_field(body, "model", "")
        system = text_of(body.get("system"), "system", joint="\n")
        messages = [Message("system", system)] if system else []
        for number, message in enumerate(list_field(body, "messages")):
            where = f"messages[{number}]"
            messages += _read_message(object_of(message, where), where)
        if not any(message.role != "system" for message in messages):
            raise Refused(400, "messages must not be empty", "messages")
        tools = tuple(_tools(body))
        choice = object_of(body.get("tool_choice") or {"type": "auto"}, "tool_choice")
        call = ModelCall(
            messages=tuple(messages),
            tools=tools,
            tool_choice=_tool_choice(choice, tools),
            max_tokens=token_limit(body, "max_tokens"),
            stop=stop_sequences(body, "stop_sequences"),
            parallel_tool_calls=False if is_set(choice, "disable_parallel_tool_use") else None,
            model=model,
            overridden=overridden(body),
        )
        return WireCall(call, model, is_set(body, "stream"))

    def reply(self, sent: WireCall, reply: ModelReply, session: Any) -> dict[str, Any]:
        """Return the reply as a message."""
        return {
            "id": f"msg_{reply.number}",
            "type": "message",
            "role": "assistant",
            "model": sent.model,
            "content": list(_blocks(reply)),
            "stop_reason": "stop_sequence" if reply.stopped_at else _STOP_REASONS[reply.finish],
            "stop_sequence": reply.stopped_at or None,
            "usage": _usage(reply.prompt_tokens, reply.sampled_tokens),
        }

    def events(self, sent: WireCall, reply: ModelReply, session: Any) -> Iterable[bytes]:
        """Yield the reply as the events of a streamed message."""
        whole = self.reply(sent, reply, session)
        started = {**whole, "content": [], "stop_reason": None, "stop_sequence": None}
        started["usage"] = _usage(reply.prompt_tokens, 0)
        yield _event("message_start", message=started)
        for number, block in enumerate(whole["content"]):
            empty, deltas = _opened(block)
            yield _event("content_block_start", index=number, content_block=empty)
            for delta in deltas:
                yield _event("content_block_delta", index=number, delta=delta)
            yield _event("content_block_stop", index=number)
        ended = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        yield _event("message_delta", delta=ended, usage=whole["usage"])
        yield _event("message_stop")

    def error(self, refused: Refused) -> dict[str, Any]:
        """Return an error in Anthropic's format."""
        usual = "invalid_request_error" if refused.status < 500 else "api_error"
        kind = _ERROR_TYPES.get(refused.status, usual)
        return {"type": "error", "error": {"type": kind, "message": refused.message}}


def _event(kind: str, **data: Any) -> bytes:
    return event({"type": kind, **data}, kind)


def _read_message(message: Body, where: str) -> Iterator[Message]:
    """Yield one message as Chat Completions splits it: each tool result is a separate message."""
    role, content = message.get("role"), message.get("content")
    if role == "system":
        yield Message("system", text_of(content, f"{where}.content", joint="\n"))
        return
    if role not in ("user", "assistant"):
        raise Refused(400, f"{where}.role is {role!r}; use user or assistant", where)
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise Refused(400, f"{where}.content must be a string or a list of blocks", where)
    texts: list[str] = []
    calls: list[RequestedCall] = []
    for number, block in enumerate(blocks):
        place = f"{where}.content[{number}]"
        kind = object_of(block, place).get("type")
        if kind == "text":
            texts.append(text_field(block, "text"))
        elif kind == "tool_result" and role == "user":
            if texts:
                yield Message("user", "\n".join(texts))
                texts = []
            result = text_of(block.get("content"), f"{place}.content", joint="\n")
            yield Message("tool", result, call_id=text_field(block, "tool_use_id"))
        elif kind == "tool_use" and role == "assistant":
            calls.append(_read_call(block, place))
        elif kind not in ("thinking", "redacted_thinking"):
            raise Refused(400, f"{place} has the type {kind!r}; only text is supported", place)
    if role == "assistant":
        yield Message("assistant", "".join(texts), calls=tuple(calls))
    elif texts:
        yield Message("user", "\n".join(texts))


def _read_call(block: Body, where: str) -> RequestedCall:
    arguments = json.dumps(object_of(block.get("input"), f"{where}.input"), ensure_ascii=False)
    return RequestedCall(text_field(block, "id"), text_field(block, "name"), arguments)


def _tools(body: Body) -> Iterator[dict[str, Any]]:
    for number, tool in enumerate(list_field(body, "tools")):
        where = f"tools[{number}]"
        if object_of(tool, where).get("type") not in (None, "custom"):
            raise Refused(
                400, f"{where} runs at the provider; use a tool with an input_schema", where
            )
        yield function_schema(
            tool.get("name"), tool.get("description"), tool.get("input_schema"), where
        )


def _tool_choice(choice: Body, tools: tuple[Any, ...]) -> str | None:
    kind = choice.get("type")
    if kind == "auto":
        return None
    if kind == "none":
        return "none"
    if kind == "any":
        return chosen_tool("required", tools)
    if kind == "tool":
        return chosen_tool(choice.get("name"), tools)
    raise Refused(400, f"tool_choice has the unknown type {kind!r}", "tool_choice")


def _blocks(reply: ModelReply) -> Iterator[dict[str, Any]]:
    if reply.thinking:
        yield {"type": "thinking", "thinking": reply.thinking, "signature": "sparring"}
    if reply.content or not reply.calls:
        yield {"type": "text", "text": reply.content}
    for call in reply.calls:
        given = json.loads(call.arguments)
        yield {"type": "tool_use", "id": call.id, "name": call.tool, "input": given}


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the block with empty content, and the deltas that fill it."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "tool_use":
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return {**block, "input": {}}, [delta]
    deltas = [
        {"type": "thinking_delta", "thinking": block["thinking"]},
        {"type": "signature_delta", "signature": block["signature"]},
    ]
    return {**block, "thinking": "", "signature": ""}, deltas


def _usage(given: int, sampled: int) -> dict[str, int]:
    return {
        "input_tokens": given,
        "output_tokens": sampled,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
