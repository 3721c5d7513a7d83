"""Parses turns of Gemma 4, with calls such as `call:look_up{city:<|"|>Oslo<|"|>,day:3}`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sparring.contracts.chat import ToolSchema
from sparring.contracts.json import JsonObject
from sparring.contracts.policies import ParsedCall, Reply
from sparring.policies.tool_calls import MAX_CALLS, call_of

_QUOTE = '<|"|>'
_CALL = re.compile(r"\s*call:\s*([^{\s]+)\s*(?=\{)")
_KEY = re.compile(r"([^:{}\[\],]+):")
_THOUGHT = re.compile(
    r"<\|channel>(?:thought\n)?(.*?)(?:<channel\|>|(?=<\|tool_call>)|\Z)", re.DOTALL
)
_NUMBER = re.compile(r"-?\d{1,4000}(\.\d+)?([eE][+-]?\d{1,4})?")
_LITERALS = {
    "true": True, "false": False, "null": None, "True": True, "False": False, "None": None,
}  # fmt: skip
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class GemmaCalls:
    """Any number of calls, each written as `call:NAME{…}` between two tags. Strings are quoted with
    `<|"|>`; field names are not quoted."""

    reads_tokens: ClassVar[bool] = True
    open: str = "<|tool_call>"
    close: str = "<tool_call|>"

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> Reply:  # noqa: ARG002
        """Return the text before the first call, the thinking and the calls."""
        text, thinking = _split_thinking(text)
        content, *bodies = text.split(self.open)
        if len(bodies) > MAX_CALLS:
            return Reply(text, thinking, malformed=f"more than {MAX_CALLS} tool calls at once")
        calls: list[ParsedCall] = []
        for number, body in enumerate(bodies, 1):
            inside, closed, _ = body.partition(self.close)
            call = _read_call(inside)
            if not closed and (isinstance(call, str) or number < len(bodies)):
                call = f"a tool call is not closed by {self.close}"
            if isinstance(call, str):
                return Reply(text, thinking, malformed=call)
            calls.append(call)
        return Reply(content.strip(), thinking, tuple(calls))

    def opening(self, tool: str | None) -> str:
        """Return the beginning of a call: up to the arguments of `tool`, or up to the name if
        `tool` is None."""
        return f"{self.open}call:" + ("" if tool is None else f"{tool}{{")


def _split_thinking(text: str) -> tuple[str, str]:
    """Return the text without its thinking, and the thinking. A closing tag without an opening tag
    ends a thought that the prompt opened. A tool call ends an unclosed thought."""
    first, closed, rest = text.partition("<channel|>")
    is_open = bool(closed) and "<|channel>" not in first
    thoughts = [first] if is_open else []
    text = rest if is_open else text
    thoughts += _THOUGHT.findall(text)
    joined = "\n".join(thought.strip() for thought in thoughts if thought.strip())
    return _THOUGHT.sub("", text).strip(), joined


def _read_call(text: str) -> ParsedCall | str:
    found = _CALL.match(text)
    if found is None:
        return "a tool call must have the form call:NAME{…}"
    reader = _Reader(text, found.end())
    try:
        arguments = reader.value(0)
        reader.expect_end()
    except ValueError as error:
        return f"the arguments of {found[1]} cannot be read: {error}"
    return call_of(found[1], arguments)


class _Reader:
    """Reads values from `text`, from position `place` on. Raises ValueError for invalid text."""

    def __init__(self, text: str, place: int) -> None:
        self._text = text
        self._place = place

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")
        self._skip_space()
        if self._took(_QUOTE):
            return self._string()
        if self._took("{"):
            return self._fields(depth)
        if self._took("["):
            return self._items(depth)
        for word, value in _LITERALS.items():
            if self._took(word):
                return value
        number = _NUMBER.match(self._text, self._place)
        if number is None:
            raise ValueError(f"no value at {self._shown()}")
        self._place = number.end()
        return float(number[0]) if number[1] or number[2] else int(number[0])

    def expect_end(self) -> None:
        self._skip_space()
        if self._place < len(self._text):
            raise ValueError(f"text after the arguments: {self._shown()}")

    def _string(self) -> str:
        end = self._text.find(_QUOTE, self._place)
        if end < 0:
            raise ValueError(f"a string is not closed by {_QUOTE}")
        text, self._place = self._text[self._place : end], end + len(_QUOTE)
        return text

    def _fields(self, depth: int) -> JsonObject:
        fields: JsonObject = {}
        while not self._closes("}", is_first=not fields):
            key = self._key()
            fields[key] = self.value(depth + 1)
        return fields

    def _key(self) -> str:
        self._skip_space()
        if self._took(_QUOTE):
            key = self._string()
            self._skip_space()
            if not self._took(":"):
                raise ValueError(f"no colon after the field {key!r}")
            return key
        found = _KEY.match(self._text, self._place)
        if found is None:
            raise ValueError(f"no field at {self._shown()}")
        self._place = found.end()
        key = found[1].strip()
        return key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key

    def _items(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self._closes("]", is_first=not items):
            items.append(self.value(depth + 1))
        return items

    def _closes(self, bracket: str, *, is_first: bool) -> bool:
        """Consume the closing bracket and return True, or the comma before the next item and return
        False."""
        self._skip_space()
        if self._took(bracket):
            return True
        if not is_first and not self._took(","):
            raise ValueError(f"no comma or {bracket} at {self._shown()}")
        return False

    def _took(self, text: str) -> bool:
        if not self._text.startswith(text, self._place):
            return False
        self._place += len(text)
        return True

    def _skip_space(self) -> None:
        while self._place < len(self._text) and self._text[self._place].isspace():
            self._place += 1

    def _shown(self) -> str:
        return repr(self._text[self._place : self._place + 20])
