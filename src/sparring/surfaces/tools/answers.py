"""From results to what an AI agent reads: words of others marked as data, and short by default.

A mark is a table with the one key `untrusted`. JSON keeps what is inside from getting out of it,
whatever it says.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Literal

from pydantic import BaseModel

from sparring.contracts.foreign import FOREIGN, MIXED, SUMMARY

Detail = Literal["short", "full"]
UNTRUSTED = "untrusted"
MOST: Mapping[Detail, int] = {"short": 3_900, "full": 60_000}

# Among figures: a name, a number; under keys of ours a path. Whoever gives orders needs more.
_NAME = re.compile(r"[\w./:%+\-@]{0,64}", re.ASCII)
_PATH = re.compile(r"/[\w./:+\-@]{1,300}", re.ASCII)
_PATHS = frozenset({"checkpoint", "path", "best_checkpoint", "last_checkpoint", "log", "file"})
_OUR_WORDS = frozenset(
    {"advice", "basis", "fault", "memory_of", "plan", "sentence", "standing", "verdict", "what"}
)
_USUAL = frozenset({"format"})  # says nothing to whoever reads an answer
_LARGEST_ROUNDED = 1e6


@dataclass(frozen=True, slots=True)
class _Size:
    """How much of each thing is shown."""

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


_ONE_LINE = _Size(1_000, 300)  # of a page


def answer(result: BaseModel, detail: Detail) -> dict[str, Any]:
    """One result, within what this detail allows. Pages lose their end rather than their middle,
    and say where to go on."""
    most = MOST[detail]
    if detail == "short" and (short := getattr(result, "short", None)) is not None:
        result = short()
    first: Callable[[int], BaseModel] | None = getattr(result, "first", None)
    if first is None:
        return fitted(marked(result, detail), most)
    count = len(getattr(result, _page_of(result)))
    while True:
        told = marked(first(count), detail)
        small = _cut(told, _ONE_LINE)
        if _length(small) <= most or count <= 1:
            return fitted(small, most)
        count = max(1, count * 3 // 4)


def marked(value: Any, detail: Detail) -> Any:
    """Plain values; what is foreign under `untrusted`. Short: without what is empty or usual."""
    if not isinstance(value, BaseModel):
        if isinstance(value, list | tuple):
            return [marked(each, detail) for each in value]
        return _rounded(plain(value), detail)
    told: dict[str, Any] = {}
    for name, field in type(value).model_fields.items():
        inner = getattr(value, name)
        is_usual = not field.is_required() and inner == field.get_default(call_default_factory=True)
        if is_usual and (detail == "short" or _is_empty(inner)):
            continue
        if FOREIGN in field.metadata:
            words = plain(inner)
            told[name] = words if _is_empty(words) else {UNTRUSTED: words}
        elif MIXED in field.metadata:
            told[name] = _with_marks(plain(inner), detail, frozenset())
        elif SUMMARY in field.metadata:
            told[name] = _with_marks(plain(inner), detail, _OUR_WORDS)
        else:
            told[name] = marked(inner, detail)
    return told


def fitted(table: dict[str, Any], most: int) -> dict[str, Any]:
    """As much of a table as fits. What was left out is said."""
    if _length(table) <= most:
        return table
    hint = {"shortened": "ask for a part of it, or with detail='full'"}
    for size in _SIZES:
        small = {**_cut(table, size), **hint}
        if _length(small) <= most:
            return small
    left_out: list[str] = []
    while _length({**small, "left_out": left_out}) > most:
        largest = max(
            (name for name in small if name != "shortened"), key=lambda name: _length(small[name])
        )
        del small[largest]
        left_out.append(largest[:80])
    return {**small, "left_out": left_out}


# ---------------------------------------------------------------------- inside


def plain(value: Any) -> Any:
    """JSON that every reader takes: no infinities, no halves of characters."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {_text(str(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)[:80]
    return _text(str(value))


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode("utf-8")


def _with_marks(value: Any, detail: Detail, ours: frozenset[str], name: str = "") -> Any:
    if isinstance(value, dict):
        shown: dict[str, Any] = {}
        for number, (key, each) in enumerate(value.items()):
            inner = _with_marks(each, detail, ours, key)
            if _NAME.fullmatch(key):
                shown[key] = inner
            else:  # a key that is words of somebody's
                shown[f"{UNTRUSTED}_{number}"] = {UNTRUSTED: {"name": key, "value": inner}}
        if detail == "full":
            return shown
        return {
            key: each for key, each in shown.items() if not _is_empty(each) and key not in _USUAL
        }
    if isinstance(value, list):
        return [_with_marks(each, detail, ours, name) for each in value]
    if isinstance(value, float):
        return _rounded(value, detail)
    if isinstance(value, str):
        is_path = name in _PATHS and _PATH.fullmatch(value)
        return value if name in ours or is_path or _NAME.fullmatch(value) else {UNTRUSTED: value}
    return value


def _rounded(value: Any, detail: Detail) -> Any:
    """Nobody reads sixteen digits."""
    if detail == "full" or not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if abs(value) < _LARGEST_ROUNDED else round(value)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)


def _cut(value: Any, size: _Size) -> Any:
    if isinstance(value, dict):
        return {name: _cut(each, size) for name, each in value.items()}
    if isinstance(value, list):
        return _cut_list(value, size)
    if isinstance(value, str) and len(value) > size.characters:
        return _cut_text(value, size.characters)
    return value


def _cut_list(value: Sequence[Any], size: _Size) -> list[Any]:
    """Its beginning and its end: of what happened, the last matters as much as the first."""
    if len(value) <= size.items:
        return [_cut(each, size) for each in value]
    head, tail = (size.items + 1) // 2, size.items // 2
    shown = [*value[:head], f"… {len(value) - size.items} more …"]
    shown += value[len(value) - tail :] if tail else []
    return [_cut(each, size) for each in shown]


def _cut_text(value: str, most: int) -> str:
    """Of lines, the last say what happened; of a sentence, the first."""
    told = f"… {len(value) - most} more characters …"
    return f"{told}\n{value[-most:]}" if "\n" in value else f"{value[:most]}{told}"


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _page_of(result: BaseModel) -> str:
    """The field that holds what a page is a page of."""
    return next(
        name for name in type(result).model_fields if isinstance(getattr(result, name), tuple)
    )
