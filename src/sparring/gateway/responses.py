"""The wire format of `/v1/responses`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from sparring.contracts.rollouts import Message
from sparring.gateway.chat_completions import ChatCompletions
from sparring.gateway.sessions import OpenSession
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
    text_field,
    text_of,
    token_limit,
)
from sparring.player.conversation import to_messages
from sparring.player.recorder import ModelCall

_NO_LOGPROBS = "replies come without log-probabilities"
_UNSUPPORTED = {
    "background": "the response always contains the complete reply",
    "conversation": "use previous_response_id, or send all items",
    "prompt": "send the prompt itself as instructions",
    "top_logprobs": _NO_LOGPROBS,
}
_LOGPROBS = "message.output_text.logprobs"
_TEXT_PARTS = ("input_text", "output_text", "text", "refusal")
_ROLES = ("system", "developer", "user", "assistant")


class Responses:
    """OpenAI's Responses API. A stored response is visible only in its session."""

    def read(self, body: Body, session: OpenSession) -> WireCall:
        """Parse a request; raises Refused for an invalid or unsupported field."""
        refuse(body, _UNSUPPORTED)
        included = body.get("include") or []
        if not isinstance(included, list):
            raise Refused(400, "include must be a list", "include")
        if _LOGPROBS in included:
            raise Refused(400, f"{_LOGPROBS} is not supported: {_NO_LOGPROBS}", "include")
        model = text_field(body, "model", "")
        items = [*_earlier(body, session), *_items(body, session)]
        if not items:
            raise Refused(400, "input must not be empty", "input")
        messages = to_messages(items)
        if instructions := body.get("instructions"):
            messages = [Message("system", text_of(instructions, "instructions")), *messages]
        tools = tuple(_tools(body))
        choice = _tool_choice(body.get("tool_choice"), tools)
        call = ModelCall(
            messages=tuple(messages),
            tools=tools,
            tool_choice=choice,
            max_tokens=token_limit(body, "max_output_tokens"),
            output_schema=_output_schema(body),
            parallel_tool_calls=None
            if body.get("parallel_tool_calls") is None
            else is_set(body, "parallel_tool_calls"),
            model=model,
            overridden=overridden(body),
        )
        return WireCall(call, model, is_set(body, "stream"), items=tuple(items), body=body)

    def reply(self, sent: WireCall, reply: ModelReply, session: OpenSession) -> dict[str, Any]:
        """Return the reply as a response, and store it unless the request sets `store` to false."""
        output = list(_output(reply))
        whole = _response(sent, reply, output)
        if sent.body.get("store") is not False:
            session.responses[whole["id"]] = (*sent.items, *output)
            session.items.update({item["id"]: item for item in output})
        return whole

    def events(self, sent: WireCall, reply: ModelReply, session: OpenSession) -> Iterable[bytes]:
        """Yield the reply as the events of a streamed response."""
        whole = self.reply(sent, reply, session)
        started = {**whole, "status": "in_progress", "output": [], "usage": None}
        steps = [
            ("response.created", {"response": started}),
            ("response.in_progress", {"response": started}),
        ]
        for number, item in enumerate(whole["output"]):
            steps += _item_events(number, item)
        steps.append((f"response.{whole['status']}", {"response": whole}))
        for number, (kind, data) in enumerate(steps):
            yield event({"type": kind, "sequence_number": number, **data}, kind)

    def error(self, refused: Refused) -> dict[str, Any]:
        """Return an error in OpenAI's format."""
        return ChatCompletions().error(refused)


def _earlier(body: Body, session: OpenSession) -> tuple[Any, ...]:
    previous = body.get("previous_response_id")
    if previous is None:
        return ()
    if not isinstance(previous, str) or previous not in session.responses:
        message = f"this session has no stored response {str(previous)[:100]!r}"
        raise Refused(400, message, "previous_response_id")
    return session.responses[previous]


def _items(body: Body, session: OpenSession) -> Iterator[Body]:
    given = body.get("input")
    if isinstance(given, str):
        yield {"role": "user", "content": given}
        return
    for number, item in enumerate(list_field(body, "input")):
        where = f"input[{number}]"
        if object_of(item, where).get("type") == "item_reference":
            name = item.get("id")
            if not isinstance(name, str) or name not in session.items:
                raise Refused(400, f"{where}: this session stored no such item", where)
            item = session.items[name]
        yield _checked(item, where)


def _checked(item: Body, where: str) -> Body:
    """Return the item with its content as a string; raises Refused for content other than text."""
    kind = item.get("type") or "message"
    if kind == "message":
        role = item.get("role")
        if role not in _ROLES:
            raise Refused(400, f"{where}.role must be one of {', '.join(_ROLES)}", where)
        content = text_of(item.get("content"), f"{where}.content", _TEXT_PARTS)
        return {"type": "message", "role": role, "content": content}
    if kind == "function_call":
        names = ("call_id", "name", "arguments")
        return {"type": kind, **{name: text_field(item, name) for name in names}}
    if kind == "function_call_output":
        output = text_of(item.get("output"), f"{where}.output", _TEXT_PARTS)
        return {"type": kind, "call_id": text_field(item, "call_id"), "output": output}
    if kind == "reasoning":
        return {"type": kind}
    raise Refused(400, f"{where} has the type {kind!r}, which a text model cannot read", where)


def _tools(body: Body) -> Iterator[dict[str, Any]]:
    for number, tool in enumerate(list_field(body, "tools")):
        where = f"tools[{number}]"
        if object_of(tool, where).get("type") != "function":
            raise Refused(400, f"{where} has the type {tool.get('type')!r}; use function", where)
        yield function_schema(
            tool.get("name"), tool.get("description"), tool.get("parameters"), where
        )


def _tool_choice(choice: Any, tools: tuple[Any, ...]) -> str | None:
    if choice is None or choice == "auto":
        return None
    if choice == "none":
        return "none"
    return chosen_tool(choice.get("name") if isinstance(choice, dict) else choice, tools)


def _output_schema(body: Body) -> dict[str, Any] | None:
    text = object_of(body.get("text") or {}, "text")
    form = object_of(text.get("format") or {"type": "text"}, "text.format")
    kind = form.get("type")
    if kind == "json_schema":
        return dict(object_of(form.get("schema"), "text.format.schema"))
    if kind == "json_object":
        return {"type": "object"}
    if kind == "text":
        return None
    raise Refused(400, f"text.format has the unknown type {kind!r}", "text.format")


def _output(reply: ModelReply) -> Iterator[dict[str, Any]]:
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        yield {"id": f"rs_{reply.number}", "type": "reasoning", "summary": summary}
    if reply.content or not reply.calls:
        part = {"type": "output_text", "text": reply.content, "annotations": [], "logprobs": []}
        yield {
            "id": f"msg_{reply.number}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    for call in reply.calls:
        yield {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.tool,
            "arguments": call.arguments,
        }


def _response(sent: WireCall, reply: ModelReply, output: list[dict[str, Any]]) -> dict[str, Any]:
    is_cut_off = reply.finish is FinishReason.LENGTH
    body = sent.body
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if is_cut_off else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut_off else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": sent.model,
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "store": body.get("store") is not False,
        "temperature": body.get("temperature"),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p"),
        "usage": {
            "input_tokens": reply.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": reply.sampled_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.prompt_tokens + reply.sampled_tokens,
        },
    }


def _item_events(number: int, item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    place = {"output_index": number, "item_id": item["id"]}
    empty = dict(item)
    if item["type"] == "message":
        empty |= {"content": [], "status": "in_progress"}
    elif item["type"] == "function_call":
        empty |= {"arguments": "", "status": "in_progress"}
    yield "response.output_item.added", {"output_index": number, "item": empty}
    if item["type"] == "message":
        part = item["content"][0]
        here = {**place, "content_index": 0}
        yield "response.content_part.added", {**here, "part": {**part, "text": ""}}
        text = {**here, "logprobs": []}
        yield "response.output_text.delta", {**text, "delta": part["text"]}
        yield "response.output_text.done", {**text, "text": part["text"]}
        yield "response.content_part.done", {**here, "part": part}
    elif item["type"] == "function_call":
        arguments = item["arguments"]
        yield "response.function_call_arguments.delta", {**place, "delta": arguments}
        done = {**place, "name": item["name"], "arguments": arguments}
        yield "response.function_call_arguments.done", done
    yield "response.output_item.done", {"output_index": number, "item": item}
