"""Tool calls written as a list of Python calls: `[look_up(city="Oslo", day=3)]` (LFM2)."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.chat import ToolSchema
from sparring.contracts.policies import ParsedCall, Reply
from sparring.policies.tool_calls import MAX_CALLS, call_of

_LONGEST = 100_000  # characters; the memory of Python's parser grows with the length
_JSON_NAMES = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """A list of Python calls with keyword arguments, between two tags."""

    open: str = "<|tool_call_start|>"
    close: str = "<|tool_call_end|>"

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> Reply:  # noqa: ARG002
        """Return the text before the opening tag, and the calls."""
        content, opened, rest = text.partition(self.open)
        if not opened:
            return Reply(content=text.strip())
        body, closed, _ = rest.partition(self.close)
        if not closed:
            return Reply(content=text, malformed=f"the tool calls are not closed by {self.close}")
        found = _read_calls(body)
        if isinstance(found, str):
            return Reply(content=text, malformed=found)
        return Reply(content=content.strip(), calls=tuple(found))

    def opening(self, tool: str | None) -> str:
        """Return the beginning of a call: up to the arguments of `tool`, or up to the name if
        `tool` is None."""
        return f"{self.open}[" + ("" if tool is None else f"{tool}(")


def _read_calls(body: str) -> list[ParsedCall] | str:
    if len(body) > _LONGEST:
        return f"the tool calls are longer than {_LONGEST:,} characters"
    try:
        readable = body.strip().replace("\x00", "\\x00")  # Python's parser refuses null bytes
        tree = ast.parse(readable, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the tool calls are not a list of calls: {error}"
    if not isinstance(tree, ast.List):
        return "the tool calls must be a list, as in [look_up(city='Oslo')]"
    if len(tree.elts) > MAX_CALLS:
        return f"more than {MAX_CALLS} tool calls at once"
    calls = []
    for node in tree.elts:
        call = _read_call(node)
        if isinstance(call, str):
            return call
        calls.append(call)
    return calls


def _read_call(node: ast.expr) -> ParsedCall | str:
    if not isinstance(node, ast.Call):
        return "the list of tool calls contains an item that is not a call"
    try:
        name = ast.unparse(node.func)
        if node.args or any(keyword.arg is None for keyword in node.keywords):
            return f"the arguments of {name} must be given by name"
        arguments = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
        return call_of(name, arguments)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return "an argument of a tool call is not a literal value"


def _value(node: ast.expr) -> Any:
    """Return the value of a Python literal that may contain JSON's `true`, `false` and `null`."""
    if isinstance(node, ast.Name) and node.id in _JSON_NAMES:
        return _JSON_NAMES[node.id]
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {
            str(ast.literal_eval(key)): _value(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    return ast.literal_eval(node)
