"""The wire format of `/v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from sparring.contracts.chat import chat_call
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.gateway.sessions import OpenSession
from sparring.gateway.wire import (
    Body,
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

_ROLES = {"system": "system", "developer": "system", "user": "user"}
_UNSUPPORTED = {
    "functions": "use tools",
    "function_call": "use tool_choice",
    "audio": "the model reads and writes text",
    "logprobs": "replies come without log-probabilities",
    "logit_bias": "the run's settings control sampling",
    "web_search_options": "the agent must run its tools itself",
}
_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 410: "session_ended"}


class ChatCompletions:
    """OpenAI's Chat Completions API."""

    def read(self, body: Body, session: OpenSession) -> WireCall:
        """Parse a request; raises Refused for an invalid or unsupported field."""
        refuse(body, _UNSUPPORTED)
        if body.get("n") not in (None, 1):
            raise Refused(400, "n must be 1; send the request again for another reply", "n")
        if body.get("modalities") not in (None, ["text"]):
            raise Refused(400, 'modalities must be ["text"]', "modalities")
        model = text_field(body, "model", "")
        given = list_field(body, "messages")
        messages = session.recent.messages(given, read_message, "messages")
        if not messages:
            raise Refused(400, "messages must not be empty", "messages")
        tools = tuple(_tools(body))
        choice = _tool_choice(body.get("tool_choice"), tools)
        options = body.get("stream_options")
        call = ModelCall(
            messages=messages,
            tools=tools,
            tool_choice=choice,
            max_tokens=token_limit(body, "max_completion_tokens", "max_tokens"),
            stop=stop_sequences(body, "stop"),
            output_schema=output_schema(body.get("response_format")),
            parallel_tool_calls=None
            if body.get("parallel_tool_calls") is None
            else is_set(body, "parallel_tool_calls"),
            model=model,
            overridden=overridden(body),
        )
        has_usage = isinstance(options, dict) and options.get("include_usage") is True
        return WireCall(call, model, is_set(body, "stream"), has_usage)

    def reply(self, sent: WireCall, reply: ModelReply, session: Any) -> dict[str, Any]:
        """Return the reply as a chat completion."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.content if reply.content or not reply.calls else None,
            "refusal": None,
        }
        if reply.thinking:
            message["reasoning_content"] = reply.thinking
        if reply.calls:
            message["tool_calls"] = [
                chat_call(call.tool, call.arguments, call.id) for call in reply.calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": reply.finish.value,
            "logprobs": None,
        }
        return {
            **_head(sent, reply, "chat.completion"),
            "choices": [choice],
            "usage": _usage(reply),
        }

    def events(self, sent: WireCall, reply: ModelReply, session: Any) -> Iterable[bytes]:
        """Yield the reply as the chunks of a streamed chat completion."""
        head = _head(sent, reply, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
            usage = {"usage": None} if sent.has_usage else {}
            return event({**head, "choices": [choice], **usage})

        yield chunk({"role": "assistant", "content": ""})
        if reply.thinking:
            yield chunk({"reasoning_content": reply.thinking})
        if reply.content:
            yield chunk({"content": reply.content})
        for number, call in enumerate(reply.calls):
            opening = {"index": number, **chat_call(call.tool, "", call.id)}
            yield chunk({"tool_calls": [opening]})
            rest = {"index": number, "function": {"arguments": call.arguments}}
            yield chunk({"tool_calls": [rest]})
        yield chunk({}, reply.finish.value)
        if sent.has_usage:
            yield event({**head, "choices": [], "usage": _usage(reply)})
        yield event("[DONE]")

    def error(self, refused: Refused) -> dict[str, Any]:
        """Return an error in OpenAI's format."""
        usual = "invalid_request_error" if refused.status < 500 else "server_error"
        kind = _ERROR_TYPES.get(refused.status, usual)
        return {
            "error": {
                "message": refused.message,
                "type": kind,
                "param": refused.parameter,
                "code": kind,
            }
        }


def read_message(given: Any, where: str) -> Message:
    """Parse one message; `where` is its location in error messages."""
    message = object_of(given, where)
    role = message.get("role")
    content = message.get("content")
    if isinstance(role, str) and role in _ROLES:
        return Message(_ROLES[role], text_of(content, f"{where}.content"))
    if role == "tool":
        call_id = text_field(message, "tool_call_id")
        return Message("tool", text_of(content, f"{where}.content"), call_id=call_id)
    if role == "assistant":
        text = text_of(content, f"{where}.content", ("text", "refusal"))
        thinking = message.get("reasoning_content")
        return Message(
            "assistant",
            text,
            thinking=thinking if isinstance(thinking, str) else "",
            calls=tuple(_calls(message, where)),
        )
    raise Refused(400, f"{where}.role is {role!r}; use system, user, assistant or tool", where)


def output_schema(response_format: Any) -> dict[str, Any] | None:
    """Return the JSON schema that a response format requires; None for plain text."""
    if response_format is None:
        return None
    kind = object_of(response_format, "response_format").get("type")
    if kind == "json_schema":
        form = object_of(response_format.get("json_schema"), "response_format.json_schema")
        return dict(object_of(form.get("schema"), "response_format.json_schema.schema"))
    if kind == "json_object":
        return {"type": "object"}
    if kind == "text":
        return None
    raise Refused(400, f"response_format has the unknown type {kind!r}", "response_format")


def _calls(message: Body, where: str) -> Iterator[RequestedCall]:
    for number, call in enumerate(list_field(message, "tool_calls")):
        place = f"{where}.tool_calls[{number}]"
        function = object_of(object_of(call, place).get("function"), f"{place}.function")
        yield RequestedCall(
            text_field(call, "id"),
            text_field(function, "name"),
            text_field(function, "arguments", "{}"),
        )


def _tools(body: Body) -> Iterator[dict[str, Any]]:
    for number, tool in enumerate(list_field(body, "tools")):
        where = f"tools[{number}]"
        if object_of(tool, where).get("type") != "function":
            raise Refused(400, f"{where} has the type {tool.get('type')!r}; use function", where)
        function = object_of(tool.get("function"), f"{where}.function")
        yield function_schema(
            function.get("name"), function.get("description"), function.get("parameters"), where
        )


def _tool_choice(choice: Any, tools: tuple[Any, ...]) -> str | None:
    if choice is None or choice == "auto":
        return None
    if choice == "none":
        return "none"
    if isinstance(choice, dict):
        choice = object_of(choice.get("function"), "tool_choice.function").get("name")
    return chosen_tool(choice, tools)


def _head(sent: WireCall, reply: ModelReply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{reply.number}",
        "object": kind,
        "created": int(time.time()),
        "model": sent.model,
    }


def _usage(reply: ModelReply) -> dict[str, int]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.sampled_tokens,
        "total_tokens": reply.prompt_tokens + reply.sampled_tokens,
    }
