"""Tool calls of Gemma 4: `call:look_up{city:<|"|>Oslo<|"|>,day:3}` between two tags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.policies import ParsedCall, Reply
from sparring.policies.tool_calls import MAX_CALLS, call_of

_QUOTE = '<|"|>'
_CALL = re.compile(r"\s*call:\s*([^{\s]+)\s*(?=\{)")
_KEY = re.compile(r"\s*([^:{}\[\],]+?)\s*:")
_NUMBER = re.compile(r"-?\d{1,4000}(\.\d+)?([eE][+-]?\d{1,4})?")
_WORDS = {"true": True, "false": False, "null": None, "None": None}
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class GemmaCalls:
    """`call:NAME{…}` between two tags, any number of times. Strings stand between `<|"|>`, names
    of fields without quotes."""

    open: str = "<|tool_call>"
    close: str = "<tool_call|>"

    def parse(self, text: str, tools: Sequence[Mapping[str, Any]] = ()) -> Reply:  # noqa: ARG002
        """Return the text before the first call, and the calls."""
        content, *bodies = text.split(self.open)
        if len(bodies) > MAX_CALLS:
            return Reply(text, malformed=f"more than {MAX_CALLS} tool calls at once")
        calls: list[ParsedCall] = []
        for body in bodies:
            inside, closed, _ = body.partition(self.close)
            if not closed:
                return Reply(text, malformed=f"a tool call is not closed by {self.close}")
            call = _read_call(inside)
            if isinstance(call, str):
                return Reply(text, malformed=call)
            calls.append(call)
        return Reply(content.strip(), calls=tuple(calls))

    def opening(self, tool: str | None) -> str:
        """Return the beginning of a call, up to the tool's name or its first argument."""
        return f"{self.open}call:" + ("" if tool is None else f"{tool}{{")


def _read_call(text: str) -> ParsedCall | str:
    found = _CALL.match(text)
    if found is None:
        return "a tool call needs call:NAME{…}"
    reader = _Reader(text, found.end())
    try:
        arguments = reader.value(0)
        reader.expect_end()
    except ValueError as error:
        return f"the arguments of {found[1]} cannot be read: {error}"
    return call_of(found[1], arguments)


class _Reader:
    """Reads values from a text, from a place on. Raises ValueError where there is none."""

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
        for word, value in _WORDS.items():
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

    def _fields(self, depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while not self._closes("}", is_first=not fields):
            key = self._key()
            fields[key] = self.value(depth + 1)
        return fields

    def _key(self) -> str:
        self._skip_space()
        if self._took(_QUOTE):
            key = self._string()
            if not self._took(":"):
                raise ValueError(f"no colon after the field {key!r}")
            return key
        found = _KEY.match(self._text, self._place)
        if found is None:
            raise ValueError(f"no field at {self._shown()}")
        self._place = found.end()
        return found[1]

    def _items(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self._closes("]", is_first=not items):
            items.append(self.value(depth + 1))
        return items

    def _closes(self, bracket: str, *, is_first: bool) -> bool:
        """Take the closing bracket, or else the comma before the next item."""
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
