"""What all wire formats share: replies, refusals, and the checks of untrusted requests."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from sparring.contracts.chat import tool_schema
from sparring.contracts.rollouts import RequestedCall
from sparring.player.recorder import ModelCall

MAIN = "main"
SUB_AGENT = "sub-agent"


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


class Refused(Exception):
    """Answers a call with an HTTP error; `parameter` names the invalid field, if there is one."""

    def __init__(self, status: int, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply to one call. `number` is the number of its turn in the session, from 0.
    `stopped_at` is the stop sequence that ended it, if one did."""

    number: int
    content: str
    thinking: str
    calls: tuple[RequestedCall, ...]
    finish: FinishReason
    prompt_tokens: int
    sampled_tokens: int
    stopped_at: str = ""


Body = Mapping[str, Any]
_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "top_k")


@dataclass(frozen=True, slots=True)
class WireCall:
    """A parsed request: the call, and the fields that determine the shape of the response."""

    call: ModelCall
    model: str
    is_streamed: bool = False
    has_usage: bool = False
    items: tuple[Any, ...] = ()
    body: Body = field(default_factory=dict)

    def retried(self, *, is_retry: bool, key: str) -> WireCall:
        """Return a copy whose call has this retry flag and idempotency key."""
        return replace(self, call=replace(self.call, is_retry=is_retry, retry_key=key))


class WireFormat(Protocol):
    """One API: parses requests, and formats replies, events and errors."""

    def read(self, body: Body, session: Any) -> WireCall:
        """Parse a request; raises Refused with the name of the invalid field."""
        ...

    def reply(self, sent: WireCall, reply: ModelReply, session: Any) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        ...

    def events(self, sent: WireCall, reply: ModelReply, session: Any) -> Iterable[bytes]:
        """Yield the reply as server-sent events."""
        ...

    def error(self, refused: Refused) -> dict[str, Any]:
        """Return the body of an error response."""
        ...


def event(data: Any, name: str | None = None) -> bytes:
    """Return one server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def text_field(body: Body, name: str, default: str | None = None) -> str:
    """Return a string field; raises Refused for any other type."""
    value = body.get(name, default)
    if not isinstance(value, str):
        raise Refused(400, f"{name} must be a string", name)
    return value


def list_field(body: Body, name: str) -> list[Any]:
    """Return a list field, empty if it is absent or null; raises Refused for any other type."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Refused(400, f"{name} must be a list", name)
    return value


def object_of(value: Any, name: str) -> Body:
    """Return the value; raises Refused, with `name`, unless it is an object."""
    if not isinstance(value, dict):
        raise Refused(400, f"{name} must be an object", name)
    return value


def is_set(body: Body, name: str) -> bool:
    """Return a boolean field, False if absent or null; raises Refused for any other type."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(400, f"{name} must be true or false", name)
    return bool(value)


def token_limit(body: Body, *names: str) -> int | None:
    """Return the first of the named limits that is set, or None."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise Refused(400, f"{name} must be a whole number above 0", name)
        return value
    return None


def stop_sequences(body: Body, name: str) -> tuple[str, ...]:
    """Return the stop sequences, given as a string or as a list."""
    value = body.get(name)
    given = [value] if isinstance(value, str) else ([] if value is None else value)
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise Refused(400, f"{name} must be a string or a list of strings", name)
    return tuple(given)


def overridden(body: Body) -> dict[str, float]:
    """Return the request's sampling parameters, which the run's settings override."""
    found = {}
    for name in _SAMPLING:
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused(400, f"{name} must be a number", name)
        found[name] = float(value)
    return found


def refuse(body: Body, unsupported: Mapping[str, str]) -> None:
    """Raise Refused for the first unsupported field that is set."""
    for name, reason in unsupported.items():
        if body.get(name):
            raise Refused(400, f"{name} is not supported: {reason}", name)


def text_of(
    content: Any, where: str, kinds: Collection[Any] = ("text",), *, joint: str = ""
) -> str:
    """Return the text of a string, null, or a list of text parts, joined by `joint`. `kinds` are
    the accepted types of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused(400, f"{where} must be a string or a list of parts", where)
    texts = []
    for number, part in enumerate(content):
        place = f"{where}[{number}]"
        kind = object_of(part, place).get("type")
        if kind not in kinds:
            raise Refused(400, f"{place} has the type {kind!r}; only text is supported", place)
        text = part.get("text", part.get("refusal"))
        if not isinstance(text, str):
            raise Refused(400, f"{place}.text must be a string", place)
        texts.append(text)
    return joint.join(texts)


def function_schema(name: Any, description: Any, parameters: Any, where: str) -> dict[str, Any]:
    """Return a tool schema in the form that the agents SDK passes to chat templates."""
    if not isinstance(name, str) or not name:
        raise Refused(400, f"{where} needs a name", where)
    if description is not None and not isinstance(description, str):
        raise Refused(400, f"{where}.description must be a string", where)
    schema = {} if parameters is None else parameters
    return tool_schema(name, description or "", object_of(schema, f"{where}.parameters"))


def chosen_tool(choice: Any, tools: tuple[Mapping[str, Any], ...]) -> str | None:
    """Return the choice; raises Refused unless it is "required" or names an offered tool."""
    names = [tool["function"]["name"] for tool in tools]
    if choice != "required" and choice not in names:
        raise Refused(400, f"tool_choice names {choice!r}, which is not among tools", "tool_choice")
    if not names:
        raise Refused(400, "tool_choice requires tools", "tool_choice")
    return str(choice)
