"""Tool-call formats that write arguments as plain text between tags, without types.

The text `5` may be a number or a string: the tool's schema decides, as in the servers of these
models. If the schema gives no type, a JSON or Python literal is decoded; vLLM keeps it as text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.chat import ToolSchema
from sparring.contracts.json import JsonObject, JsonSchema
from sparring.contracts.policies import ParsedCall, Reply
from sparring.policies.tool_calls import MAX_CALLS, call_of

_LONGEST_LITERAL = 10_000  # characters; Python's parser is slow on long expressions


@dataclass(frozen=True, slots=True)
class FunctionTags:
    """`<function=NAME>` with one `<parameter=NAME>` per argument (Qwen3.5, Coder, Nemotron 3)."""

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> Reply:
        """Return the text before the first call, and the calls."""
        return _parse_blocks(text, tools, self._read, marker="<function=")

    def opening(self, tool: str | None) -> str:
        """Return the opening tags, up to the first parameter of `tool`, or up to the name if `tool`
        is None."""
        return "<tool_call>\n<function=" + ("" if tool is None else f"{tool}>\n")

    def _read(self, body: str) -> tuple[str, dict[str, str]] | str:
        found = re.fullmatch(r"\s*<function=([^>\n]+)>(.*?)(?:</function>)\s*", body, re.DOTALL)
        if found is None:
            return "a tool call needs <function=NAME> … </function>"
        name, rest = found.group(1).strip(), found.group(2)
        arguments: dict[str, str] = {}
        while rest.strip():
            opened = re.match(r"\s*<parameter=([^>\n]+)>", rest)
            if opened is None:
                return f"the call of {name} has text outside of its parameters"
            value, closed, rest = rest[opened.end() :].partition("</parameter>")
            if not closed:
                return f"a parameter of {name} is not closed by </parameter>"
            arguments[opened.group(1).strip()] = value.removeprefix("\n").removesuffix("\n")
        return name, arguments


@dataclass(frozen=True, slots=True)
class KeyValueTags:
    """The tool's name, then `<arg_key>` and `<arg_value>` for each argument (GLM-4-MoE)."""

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> Reply:
        """Return the text before the first call, and the calls."""
        return _parse_blocks(text, tools, self._read, marker="<arg_key>")

    def opening(self, tool: str | None) -> str:
        """Return the opening tag, followed by the name if `tool` is given."""
        return "<tool_call>" + ("" if tool is None else f"{tool}\n")

    def _read(self, body: str) -> tuple[str, dict[str, str]] | str:
        name, key, rest = body.partition("<arg_key>")
        name, rest = name.strip(), key + rest
        if not name or "\n" in name:
            return "a tool call needs a name on one line before its first <arg_key>"
        arguments: dict[str, str] = {}
        while rest.strip():
            opened = re.match(r"\s*<arg_key>([^<]+)</arg_key>\s*<arg_value>", rest)
            if opened is None:
                return f"the call of {name} needs <arg_key> and <arg_value> for each argument"
            value, closed, rest = rest[opened.end() :].partition("</arg_value>")
            if not closed:
                return f"an argument of {name} is not closed by </arg_value>"
            arguments[opened.group(1).strip()] = value
        return name, arguments


def _parse_blocks(text: str, tools: Sequence[ToolSchema], read: Any, *, marker: str) -> Reply:
    """Parse every block between `<tool_call>` and `</tool_call>`. Text with `marker` but without a
    block is a malformed call."""
    first = text.find("<tool_call>")
    if first < 0:
        if marker in text:
            return Reply(content=text, malformed="a tool call is outside of <tool_call>")
        return Reply(content=text.strip())
    calls: list[ParsedCall] = []
    for body in _blocks(text[first:]):
        if body is None:
            return Reply(content=text, malformed="a tool call is not closed by </tool_call>")
        if len(calls) == MAX_CALLS:
            return Reply(content=text, malformed=f"more than {MAX_CALLS} tool calls at once")
        found = read(body)
        if isinstance(found, str):
            return Reply(content=text, malformed=found)
        name, texts = found
        call = call_of(name, typed_arguments(name, texts, tools))
        if isinstance(call, str):
            return Reply(content=text, malformed=call)
        calls.append(call)
    return Reply(content=text[:first].strip(), calls=tuple(calls))


def _blocks(text: str) -> Iterator[str | None]:
    while (start := text.find("<tool_call>")) >= 0:
        body, closed, text = text[start + len("<tool_call>") :].partition("</tool_call>")
        yield body if closed else None


def typed_arguments(tool: str, texts: Mapping[str, str], tools: Sequence[ToolSchema]) -> JsonObject:
    """Return the values of a call's arguments, converted to the types in the tool's schema."""
    functions = (schema.get("function", {}) for schema in tools)
    function: JsonSchema = next((each for each in functions if each.get("name") == tool), {})
    parameters = function.get("parameters") or {}
    properties = parameters.get("properties") or {}
    definitions = parameters.get("$defs") or {}
    return {
        name: _typed(text, _types_of(properties.get(name), definitions))
        for name, text in texts.items()
    }


def _types_of(schema: Any, definitions: JsonSchema) -> set[str]:
    """Return the JSON types that a schema allows; empty if it names none."""
    if not isinstance(schema, Mapping):
        return set()
    if isinstance(reference := schema.get("$ref"), str):
        name = reference.rpartition("/")[2]
        others = {key: each for key, each in definitions.items() if key != name}  # no cycles
        return _types_of(definitions[name], others) if name in definitions else {"object"}
    kinds = schema.get("type")
    types = {kinds} if isinstance(kinds, str) else set(kinds or ())
    for choice in schema.get("anyOf") or ():
        types |= _types_of(choice, definitions)
    return types


def _typed(text: str, types: set[str]) -> Any:
    if types == {"string"}:
        return text
    value = _literal(text)
    if isinstance(value, str) or ("string" in types and not _fits(value, types - {"string"})):
        return text
    return value


def _fits(value: Any, types: set[str]) -> bool:
    names = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    name = "null" if value is None else names[type(value)]
    return name in types or (name == "integer" and "number" in types)


def _literal(text: str) -> Any:
    """Return the value of a JSON or Python literal; return any other text unchanged."""
    for read in (json.loads, _python_literal):
        try:
            return json.loads(json.dumps(read(text), allow_nan=False))  # tuples become lists
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return text


def _python_literal(text: str) -> Any:
    if len(text) > _LONGEST_LITERAL:
        raise ValueError("too long for Python's parser")
    return ast.literal_eval(text.strip())
