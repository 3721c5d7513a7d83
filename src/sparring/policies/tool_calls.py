"""Tool-call formats of model families, and their parsers for hostile text.

A model can write anything: broken JSON, numbers of a million digits, nesting that overflows the
parser. Parsing never raises; it returns a reply whose `malformed` names the problem.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sparring.contracts.chat import ToolSchema
from sparring.contracts.policies import ParsedCall, Reply
from sparring.contracts.rollouts import clean_text

MAX_CALLS = 32
_ARGUMENT_KEYS = ("arguments", "parameters")
_MAX_DEPTH = 64  # validators and templates recurse; real arguments are far less deep


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# `json.loads` and `json.dumps` with these options make a decoder or an encoder at every call.
_DECODER = json.JSONDecoder(strict=False, parse_constant=_reject_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class ToolCallFormat(Protocol):
    """Reads and writes the tool calls of a family."""

    def parse(self, text: str, tools: Sequence[ToolSchema]) -> Reply:
        """Split a reply's text, without its thinking, into content and calls. `tools` are the
        schemas in the prompt, for formats that do not write types."""

    def opening(self, tool: str | None) -> str:
        """Return the beginning of a call: up to the arguments of `tool`, or up to the name if
        `tool` is None."""


@dataclass(frozen=True, slots=True)
class TaggedJson:
    """Any number of calls, each a JSON object between two tags (Hermes, Qwen, SmolLM2)."""

    open: str = "<tool_call>"
    close: str = "</tool_call>"
    arguments_key: str = "arguments"

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> Reply:  # noqa: ARG002
        """Return the text before the first tag, and the calls."""
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
            if len(calls) == MAX_CALLS:
                return Reply(content=text, malformed=f"more than {MAX_CALLS} tool calls at once")
            call = read_call(body, self.arguments_key)
            if isinstance(call, str):
                return Reply(content=text, malformed=call)
            calls.append(call)
        return Reply(content=content, calls=tuple(calls))

    def opening(self, tool: str | None) -> str:
        """Return the opening tag and the beginning of the object."""
        return f"{self.open}\n{_object_opening(tool, self.arguments_key)}"


@dataclass(frozen=True, slots=True)
class BareJson:
    """At most one call: the whole reply is a JSON object with a name (Llama 3.x). Without
    arguments, it is a call only if the name is that of an offered tool."""

    arguments_key: str = "parameters"
    marker: str = "<|python_tag|>"

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> Reply:
        """Return the call; the text if it is another JSON object, or no object with a name."""
        body = text.strip().removeprefix(self.marker).strip()
        names = {tool["function"]["name"] for tool in tools}
        if not (body.startswith("{") and '"name"' in body) or self._is_other_object(body, names):
            return Reply(content=text.strip())
        call = read_call(body, self.arguments_key)
        if isinstance(call, str):
            return Reply(content=text, malformed=call)
        return Reply(content="", calls=(call,))

    def _is_other_object(self, body: str, names: set[str]) -> bool:
        """Return whether the text is a JSON object that is not a call, such as a structured
        output with a field `name`."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return False
        name = value.get("name")
        if not isinstance(name, str):
            return True
        has_arguments = not value.keys().isdisjoint((self.arguments_key, *_ARGUMENT_KEYS))
        return not (has_arguments or (set(value) <= {"name", "type", "id"} and name in names))

    def opening(self, tool: str | None) -> str:
        """Return the beginning of the object."""
        return _object_opening(tool, self.arguments_key)


@dataclass(frozen=True, slots=True)
class NoCalls:
    """No tool calls: every reply is an answer, which the tags `before` and `after` may enclose.
    Agents with tools are refused."""

    before: str = ""
    after: str = ""

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> Reply:  # noqa: ARG002
        """Return the text without the tags as content."""
        return Reply(text.strip().removeprefix(self.before).removesuffix(self.after).strip())


def read_call(body: str, arguments_key: str) -> ParsedCall | str:
    """Return the call in a JSON text, or an error text."""
    try:
        value = _DECODER.decode(body)
        if not isinstance(value, dict):
            return f"a tool call must be a JSON object, not {type(value).__name__}"
        name = value.get("name")
        if not isinstance(name, str) or not name:
            return "a tool call has no name"
        # A model that was trained on another format writes the other key.
        keys = (arguments_key, *_ARGUMENT_KEYS)
        arguments: Any = next((value[key] for key in keys if key in value), {})
        if isinstance(arguments, str):
            return read_arguments(name, arguments, arguments_key)
        return call_of(name, arguments, arguments_key)
    except RecursionError:
        return "a tool call is nested too deeply"
    except ValueError as error:
        return f"a tool call is not JSON: {error}"


def read_arguments(name: str, text: str, arguments_key: str = "arguments") -> ParsedCall | str:
    """Return the call of a tool with arguments given as JSON text, or an error text."""
    try:
        arguments = _DECODER.decode(text)
    except RecursionError:
        return "a tool call is nested too deeply"
    except ValueError as error:
        return f"the {arguments_key} of {name} are not JSON: {error}"
    return call_of(name, arguments, arguments_key)


def call_of(name: str, arguments: Any, arguments_key: str = "arguments") -> ParsedCall | str:
    """Return the call of a tool with these decoded arguments, or an error text. None means no
    arguments."""
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return f"the {arguments_key} of {name} must be an object, not {type(arguments).__name__}"
    if _is_deeper_than(arguments, _MAX_DEPTH):
        return f"the arguments of {name} are nested deeper than {_MAX_DEPTH} levels"
    try:
        written = _ENCODER.encode(arguments)
    except ValueError:  # such as 1e999, which Python reads as infinity
        return f"the {arguments_key} of {name} contain a number that is too large"
    return ParsedCall(clean_text(name), clean_text(written))


def _object_opening(tool: str | None, arguments_key: str) -> str:
    if tool is None:
        return '{"name": "'
    return f'{{"name": {json.dumps(tool, ensure_ascii=False)}, "{arguments_key}": '


def _is_deeper_than(value: Any, depth: int) -> bool:
    """Return whether a value is nested deeper than `depth` levels. Iterative, because a recursive
    function would overflow the stack."""
    level = [value]
    for _ in range(depth):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True
