"""Renders results for AI agents: foreign text is marked as data, and answers are short by default.

A mark is a table with the single key `untrusted`. JSON escaping keeps any content inside the mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from sparring.contracts.foreign import FOREIGN, MIXED, SUMMARY
from sparring.contracts.json import JsonObject, plain

Detail = Literal["short", "full"]
UNTRUSTED = "untrusted"
MOST: Mapping[Detail, int] = {"short": 3_900, "full": 60_000}

# Strings among metrics that need no mark: a short name or number, or a path under a key for paths.
# An instruction to the reader does not fit into these patterns.
_NAME = re.compile(r"[\w./:%+\-@]{0,64}", re.ASCII)
_PATH = re.compile(r"/[\w./:+\-@]{1,300}", re.ASCII)
_PATHS = frozenset({"checkpoint", "path", "best_checkpoint", "last_checkpoint", "log", "file"})
_TRUSTED_KEYS = frozenset(
    {"advice", "basis", "fault", "memory_of", "plan", "sentence", "standing", "verdict", "what"}
)
_OMITTED_KEYS = frozenset({"format"})  # of no use to the reader of an answer
_LARGEST_ROUNDED = 1e6


@dataclass(frozen=True, slots=True)
class _Size:
    """The maximum number of items of a list, and of characters of a text, in an answer."""

    items: int
    characters: int


_SIZES = (
    _Size(1_000, 100_000),
    _Size(40, 2_000),
    _Size(20, 1_200),
    _Size(12, 600),
    _Size(8, 300),
    _Size(5, 160),
    _Size(3, 100),
    _Size(2, 60),
    _Size(1, 40),
)


_PAGE_LINE = _Size(1_000, 300)
# The reason of a verdict is what an operator acts on, so it is cut last.
_WHOLE_KEYS = frozenset({"why", "verdict"})
_REASON = _Size(40, 600)


def answer(result: BaseModel, detail: Detail) -> JsonObject:
    """Return one result as a table that fits the limit of `detail`.

    A page that is too long loses items at its end, and its `next` moves accordingly.
    """
    limit = MOST[detail]
    if detail == "short" and (short := getattr(result, "short", None)) is not None:
        result = short()
    first: Callable[[int], BaseModel] | None = getattr(result, "first", None)
    if first is None:
        return fitted(marked(result, detail), limit)
    items = [getattr(result, name) for name in type(result).model_fields]
    count = len(next(each for each in items if isinstance(each, tuple)))
    while True:
        small = _cut(marked(first(count), detail), _PAGE_LINE)
        if _length(small) <= limit or count <= 1:
            return fitted(small, limit)
        count = max(1, count * 3 // 4)


def marked(value: Any, detail: Detail) -> Any:
    """Return plain values, with foreign text under `untrusted`.

    Empty defaults are left out, and with `short` all defaults.
    """
    if not isinstance(value, BaseModel):
        if isinstance(value, list | tuple):
            return [marked(each, detail) for each in value]
        return _rounded(plain(value), detail)
    table: JsonObject = {}
    for name, field in type(value).model_fields.items():
        inner = getattr(value, name)
        default = field.get_default(call_default_factory=True)
        is_default = not field.is_required() and inner == default
        if is_default and (detail == "short" or _is_empty(inner)):
            continue
        if FOREIGN in field.metadata:
            content = plain(inner)
            table[name] = content if _is_empty(content) else {UNTRUSTED: content}
        elif MIXED in field.metadata:
            table[name] = _mark_strings(plain(inner), detail, frozenset())
        elif SUMMARY in field.metadata:
            table[name] = _mark_strings(plain(inner), detail, _TRUSTED_KEYS)
        else:
            table[name] = marked(inner, detail)
    return table


def fitted(table: JsonObject, limit: int) -> JsonObject:
    """Return a table cut to `limit` characters. `shortened` and `left_out` report the cuts."""
    if _length(table) <= limit:
        return table
    hint = {"shortened": "request a part of it, or pass detail='full'"}
    for size in _SIZES:
        small = {**_cut(table, size), **hint}
        if _length(small) <= limit:
            return small
    left_out: list[str] = []
    while _length({**small, "left_out": left_out}) > limit:
        largest = max(
            (name for name in small if name != "shortened"), key=lambda name: _length(small[name])
        )
        del small[largest]
        left_out.append(largest[:80])
    return {**small, "left_out": left_out}


# ---------------------------------------------------------------------- helpers


def _mark_strings(value: Any, detail: Detail, trusted: frozenset[str], name: str = "") -> Any:
    if isinstance(value, dict):
        shown: JsonObject = {}
        for number, (key, each) in enumerate(value.items()):
            inner = _mark_strings(each, detail, trusted, key)
            if _NAME.fullmatch(key):
                shown[key] = inner
            else:  # the key itself is foreign text
                shown[f"{UNTRUSTED}_{number}"] = {UNTRUSTED: {"name": key, "value": inner}}
        if detail == "full":
            return shown
        return {
            key: each
            for key, each in shown.items()
            if not _is_empty(each) and key not in _OMITTED_KEYS
        }
    if isinstance(value, list):
        return [_mark_strings(each, detail, trusted, name) for each in value]
    if isinstance(value, float):
        return _rounded(value, detail)
    if isinstance(value, str):
        is_path = name in _PATHS and _PATH.fullmatch(value)
        return value if name in trusted or is_path or _NAME.fullmatch(value) else {UNTRUSTED: value}
    return value


def _rounded(value: Any, detail: Detail) -> Any:
    """Round floats of short answers to four significant digits."""
    if detail == "full" or not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if abs(value) < _LARGEST_ROUNDED else round(value)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)


def _cut(value: Any, size: _Size) -> Any:
    if isinstance(value, dict):
        return {
            name: _cut(each, _REASON if name in _WHOLE_KEYS else size)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return _cut_list(value, size)
    if isinstance(value, str) and len(value) > size.characters:
        return _cut_text(value, size.characters)
    return value


def _cut_list(value: Sequence[Any], size: _Size) -> list[Any]:
    """Keep the beginning and the end: the last event matters as much as the first."""
    if len(value) <= size.items:
        return [_cut(each, size) for each in value]
    head, tail = (size.items + 1) // 2, size.items // 2
    shown = [*value[:head], f"… {len(value) - size.items} more …"]
    shown += value[len(value) - tail :] if tail else []
    return [_cut(each, size) for each in shown]


def _cut_text(value: str, limit: int) -> str:
    """Keep the end of a text of several lines, such as a log, and the beginning of one line."""
    mark = f"… {len(value) - limit} more characters …"
    return f"{mark}\n{value[-limit:]}" if "\n" in value else f"{value[:limit]}{mark}"


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))
