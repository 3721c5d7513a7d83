"""What may be a setting at all: plain values, of a size and depth that people write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparring.contracts.errors import SettingError

_DEEPEST, _MOST, _LARGEST, _LONGEST = 12, 20_000, 2**63, 100_000


def refuse_odd(table: Mapping[str, Any], place: str) -> None:
    """Refuse whatever JSON has no word for, tables in tables without end, and names with dots
    where dots divide names."""
    seen = 0
    waiting: list[tuple[str, Any, int]] = [("", table, 0)]
    while waiting:
        name, value, depth = waiting.pop()
        seen += 1
        if depth > _DEEPEST or seen > _MOST:
            raise SettingError(f"{place}: {_short(name)}: more than a setting can be")
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str) or not _is_plain_text(key):
                    raise SettingError(f"{place}: {_short(name)}: {key!r} cannot be a name")
                if depth < 2 and (not key.strip() or "." in key):
                    raise SettingError(
                        f"{place}: {key!r} cannot be a name: it is empty, or has a dot in it"
                    )
                waiting.append((f"{name}.{key}" if name else key, inner, depth + 1))
        elif isinstance(value, list | tuple):
            waiting += [(name, inner, depth + 1) for inner in value]
        elif not _is_plain(value):
            told = type(value).__name__
            raise SettingError(f"{place}: {_short(name)}: a {told} cannot be a setting")


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return _is_plain_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return -_LARGEST < value < _LARGEST
    return value is None or isinstance(value, bool | float)


def _is_plain_text(text: str) -> bool:
    """What can be written down again: no half of a character, no end of a text inside of it; and
    what somebody may have meant to write."""
    if len(text) > _LONGEST or "\0" in text:
        return False
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}…"
