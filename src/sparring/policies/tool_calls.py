"""How model families write tool calls, and reading them back from hostile text.

What a model writes can be anything: broken JSON, numbers of a million digits, nesting that
overflows the parser. Whatever it is, parsing ends in a reply, with what was wrong named.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from sparring.contracts.policies import ParsedCall, Reply
from sparring.contracts.rollouts import clean_text

_MAX_CALLS = 32
_MAX_DEPTH = 64  # validators and templates recurse; far less is ever meant


class ToolCallFormat(Protocol):
    """Splits a reply's text (thinking removed) into content and calls."""

    def parse(self, text: str) -> Reply: ...


@dataclass(frozen=True, slots=True)
class TaggedJson:
    """A JSON object between two tags, any number of times (Hermes, Qwen, SmolLM2)."""

    open: str = "<tool_call>"
    close: str = "</tool_call>"
    arguments_key: str = "arguments"

    def parse(self, text: str) -> Reply:
        first = text.find(self.open)
        if first < 0:
            return Reply(content=text.strip())
        calls: list[ParsedCall] = []
        content = text[:first].strip()
        rest = text[first:]
        while (start := rest.find(self.open)) >= 0:
            body, closed, rest = rest[start + len(self.open) :].partition(self.close)
            if not closed:
                return Reply(content=text, malformed=f"a tool call is not closed by {self.close}")
            if len(calls) == _MAX_CALLS:
                return Reply(content=text, malformed=f"more than {_MAX_CALLS} tool calls at once")
            call = read_call(body, self.arguments_key)
            if isinstance(call, str):
                return Reply(content=text, malformed=call)
            calls.append(call)
        return Reply(content=content, calls=tuple(calls))


@dataclass(frozen=True, slots=True)
class BareJson:
    """The whole reply is one JSON object with a name (Llama 3.x)."""

    arguments_key: str = "parameters"
    marker: str = "<|python_tag|>"

    def parse(self, text: str) -> Reply:
        body = text.strip().removeprefix(self.marker).strip()
        if not (body.startswith("{") and '"name"' in body):
            return Reply(content=text.strip())
        call = read_call(body, self.arguments_key)
        if isinstance(call, str):
            return Reply(content=text, malformed=call)
        return Reply(content="", calls=(call,))


def read_call(body: str, arguments_key: str) -> ParsedCall | str:
    """The call in a JSON text, or what is wrong with it."""
    try:
        value = json.loads(body, strict=False, parse_constant=_refuse_constant)
        if not isinstance(value, dict):
            return f"a tool call must be a JSON object, not {type(value).__name__}"
        name = value.get("name")
        if not isinstance(name, str) or not name:
            return "a tool call has no name"
        arguments = value.get(arguments_key, {})
        if isinstance(arguments, str):
            arguments = json.loads(arguments, strict=False, parse_constant=_refuse_constant)
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            return (
                f"the {arguments_key} of {name} must be an object, not {type(arguments).__name__}"
            )
        if _is_deeper_than(arguments, _MAX_DEPTH):
            return f"the {arguments_key} of {name} are nested deeper than {_MAX_DEPTH} levels"
        return ParsedCall(clean_text(name), clean_text(json.dumps(arguments, ensure_ascii=False)))
    except RecursionError:
        return "a tool call is nested too deeply"
    except ValueError as error:
        return f"a tool call is not JSON: {error}"


def _is_deeper_than(value: Any, most: int) -> bool:
    """Level by level rather than by recursion, which is what deep values break."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
