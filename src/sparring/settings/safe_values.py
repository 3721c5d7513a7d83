"""Refuses setting values that JSON cannot express, or that are too large or too deeply nested."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sparring.contracts.errors import SettingError
from sparring.contracts.specs import Table

_MAX_DEPTH, _MAX_VALUES, _MAX_INTEGER, _MAX_LENGTH = 12, 20_000, 2**63, 100_000


def refuse_unsafe_values(table: Table, place: str) -> None:
    """Raise SettingError if a value cannot be a setting. `place` is named in the error.

    Refused are values that JSON cannot express, strings and integers that are too large, and more
    than 20,000 values or 12 levels. Keys of the two outer levels must not be empty or contain a
    dot, because dots separate names.
    """
    seen = 0
    pending: list[tuple[str, Any, int]] = [("", table, 0)]
    while pending:
        name, value, depth = pending.pop()
        seen += 1
        if depth > _MAX_DEPTH or seen > _MAX_VALUES:
            raise SettingError(
                f"{place}: {_short(name)}: too large for settings (limits: {_MAX_DEPTH} levels, "
                f"{_MAX_VALUES:,} values)"
            )
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str) or not _is_plain_text(key):
                    raise SettingError(f"{place}: {_short(name)}: {key!r} cannot be a name")
                if depth < 2 and (not key.strip() or "." in key):
                    raise SettingError(
                        f"{place}: {key!r} cannot be a name: it is empty, or has a dot in it"
                    )
                pending.append((f"{name}.{key}" if name else key, inner, depth + 1))
        elif isinstance(value, list | tuple):
            pending += [(name, inner, depth + 1) for inner in value]
        elif not _is_plain(value):
            kind = type(value).__name__
            raise SettingError(f"{place}: {_short(name)}: this {kind} cannot be a setting")


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return _is_plain_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return -_MAX_INTEGER < value < _MAX_INTEGER
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool)


def _is_plain_text(text: str) -> bool:
    """Return whether a string has at most 100,000 characters, no NUL and no surrogate, which UTF-8
    cannot encode."""
    if len(text) > _MAX_LENGTH or "\0" in text:
        return False
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}…"
