"""Merges layers of settings under locks: each name gets one value, with its source and its lock.

A later layer overrides an earlier one, except in locked fields. `lora.r` is the dotted name of `r`
in the table `lora`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import InvalidInput, LockedConfig, LockedField, SettingError
from sparring.contracts.specs import Table
from sparring.contracts.training import as_table

# Sparring does not define the fields of these tables. A value in them may be a table with any keys,
# even dotted ones, and is treated as one value.
OPEN_TABLES = frozenset({"config", "engine", "lora", "quantization", "slurm"})


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with its dotted name. Tables are expanded, except empty tables and tables
    inside OPEN_TABLES, which are yielded as values."""
    for name, value in table.items():
        dotted = f"{prefix}{name}"
        is_whole = prefix.partition(".")[0] in OPEN_TABLES
        if isinstance(value, Mapping) and value and not is_whole:
            yield from flatten(value, f"{dotted}.")
        else:
            yield dotted, value


def nested(values: Table) -> Table:
    """Return values with dotted names as nested tables."""
    tables: Table = {}
    for dotted, value in values.items():
        *path, last = dotted.split(".")
        target = tables
        for part in path:
            if not isinstance(target.get(part), dict):  # a table replaces a plain value
                target[part] = {}
            target = target[part]
        target[last] = value
    return tables


def covers(name: str, other: str) -> bool:
    """Return whether `other` is `name` or lies inside the table `name`."""
    return other.startswith(name) and other[len(name) : len(name) + 1] in ("", ".")


def touches(name: str, other: str) -> bool:
    """Return whether one name covers the other, so that setting one changes both."""
    return covers(name, other) or covers(other, name)


UNSET: Any = object()

# Fields that an AI operator may not change unless the project's `may_set` lists them. They
# determine weights, servers, lengths, deadlines, cost and where metrics are sent.
DEFAULT_LOCKS = (
    "model",
    "family",
    "thinking",
    "history_thinking",
    "device",
    "dtype",
    "sampling",
    "players",
    "max_staleness",
    "quantization",
    "max_completion_length",
    "max_concurrency",
    "kv_cache_memory",
    "tool_timeout",
    "rollout_timeout",
    "measure_timeout",
    "processes",
    "nodes",
    "rendezvous",
    "launcher",
    "slurm",
    "restarts",
    "hang_timeout",
    "start_timeout",
    "stop_timeout",
    "num_train_epochs",
    "max_steps",
    "validation_cases",
    "save_steps",
    "save_total_limit",
    "learning_rate",
    "lora",
    "engine",
    "report_to",
    "project",
    "entity",
    "unsandboxed",
    "warm_start",
)


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock on a field. A lock without a value fixes the value that the layers below the command
    resolve to. `binds_owner` is false for locks that bind only operators; `way_out` is the remedy
    in the error."""

    field: str
    source: str
    value: Any = UNSET
    author: str = ""
    reason: str = ""
    binds_owner: bool = True
    way_out: str = ""

    def refusal(self, requested_by: str, field: str, locked: object, wanted: object) -> LockedField:
        """Return the error for an attempt to change a locked field."""
        holder = f"{self.author} in {self.source}" if self.author else self.source
        reason = f" ({self.reason})" if self.reason else ""
        error_class = LockedConfig if field.partition(".")[0] == "config" else LockedField
        return error_class(
            f"{requested_by}: {field} is locked to {locked!r} by {holder}{reason}; you asked for "
            f"{wanted!r}. Drop it, or {self.way_out or f'unlock it in {self.source}'}."
        )


def default_locks(
    free: Sequence[str] = (), sensitive_config: Sequence[str] = ()
) -> tuple[Lock, ...]:
    """Return the locks that bind operators, except on the fields that `free` covers.
    `sensitive_config` lists further fields to lock, from an environment's config."""
    return tuple(
        Lock(
            field,
            "the locks that bind operators by default",
            binds_owner=False,
            way_out=f"have the owner add {field!r} to [operators] may_set",
        )
        for field in (*DEFAULT_LOCKS, *sensitive_config)
        if not any(covers(name, field) for name in free)
    )


DEFAULTS = "defaults"  # the source of the lowest layer, and of names without a value


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one source.

    `places` maps dotted names to `FILE:LINE`, if the source is a file. `is_written` is true for the
    project file and the command, which must not contradict a lock. `is_command` is true for the
    command.
    """

    source: str
    values: Table
    places: Mapping[str, str] | None = None
    is_written: bool = False
    is_command: bool = False

    def source_of(self, name: str) -> str:
        """Return the place of a value, else of the nearest table around it, else the source."""
        if not self.places:
            return self.source
        parts = name.split(".")
        while parts:
            if place := self.places.get(".".join(parts)):
                return place
            parts.pop()
        return self.places.get("", self.source)


@dataclass(frozen=True, slots=True)
class Setting:
    """One resolved value, with its source and its lock."""

    value: Any
    source: str
    lock: Lock | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every setting, by its dotted name."""

    settings: Mapping[str, Setting]

    def values(self) -> Table:
        """Return the values as nested tables."""
        return nested({name: setting.value for name, setting in self.settings.items()})

    def sources(self) -> dict[str, str]:
        """Return the source of each setting that is not a default, by name, for a run's spec."""
        return {
            name: setting.source
            for name, setting in self.settings.items()
            if setting.source != DEFAULTS
        }

    def source_of(self, name: str) -> str:
        """Return the source of a value. For a name that has no value itself, return the source of
        the first setting whose name covers it or is covered by it, else DEFAULTS."""
        if name in self.settings:
            return self.settings[name].source
        for other, setting in self.settings.items():
            if touches(other, name):
                return setting.source
        return DEFAULTS


def merge(layers: Sequence[Layer], locks: Sequence[Lock], *, is_operator: bool) -> Resolved:
    """Merge the layers; later layers override earlier ones, except for locked fields.

    Raises LockedField if the project file or the command contradicts a lock. If a default or the
    environment contradicts a lock, the lock's value is used. Some locks bind only operators.
    """
    binding = [lock for lock in locks if lock.binds_owner or is_operator]
    locks_with_value = [lock for lock in binding if lock.value is not UNSET]
    locked: dict[str, Setting] = {}
    for lock in locks_with_value:
        for name, value in flatten({lock.field: lock.value}):
            _put(locked, name, Setting(value, lock.source))
    below_command: dict[str, Setting] = {}
    for layer in layers:
        if not layer.is_command:
            for name, value in flatten(layer.values):
                if layer.is_written:
                    _refuse_locked(locked, locks_with_value, name, value, layer.source_of(name))
                _put(below_command, name, Setting(value, layer.source_of(name)))
    for name, setting in locked.items():
        _put(below_command, name, setting)
    run_settings = dict(below_command)
    for layer in layers:
        if layer.is_command:
            for name, value in flatten(layer.values):
                _refuse_locked(below_command, binding, name, value, layer.source_of(name))
                _put(run_settings, name, Setting(value, layer.source_of(name)))
    return Resolved({name: _with_lock(name, run_settings[name], binding) for name in run_settings})


def _put(settings: dict[str, Setting], name: str, setting: Setting) -> None:
    """Set `name` to `setting`. A plain value replaces a table of the same name, and a value inside
    a table replaces a plain value of the table's name. An empty table does not clear an existing
    table."""
    if setting.value == {} and any(each != name and covers(name, each) for each in settings):
        return
    for other in [each for each in settings if each != name and touches(each, name)]:
        del settings[other]
    settings[name] = setting


def _refuse_locked(
    current: Mapping[str, Setting], locks: Iterable[Lock], name: str, value: Any, requested_by: str
) -> None:
    """Raise LockedField if setting a value contradicts a lock.

    Repeating the current value is allowed. If the table of a locked field is currently a plain
    value, turning it into a table contradicts the lock: with `lora.r` locked and `lora = false`,
    `lora.alpha` cannot be set.
    """
    for lock in locks:
        parents = [each for each in current if each != lock.field and covers(each, lock.field)]
        replaces_parent = any(each != name and covers(each, name) for each in parents)
        if not touches(lock.field, name) and not replaces_parent:
            continue
        if name in current and same(current[name].value, value):
            continue
        if value == {} and any(each != name and covers(name, each) for each in current):
            continue
        raise lock.refusal(requested_by, name, _current_value(current, lock.field), value)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal at every level. `True` and `1` are not equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _current_value(settings: Mapping[str, Setting], field: str) -> Any:
    """Return the value or table of a field, else the plain value of a name that covers it, else
    None."""
    inside = {name: each.value for name, each in settings.items() if covers(field, name)}
    if field in inside:
        return inside[field]
    if inside:
        return nested({name.removeprefix(f"{field}."): value for name, value in inside.items()})
    parents = [each.value for name, each in settings.items() if covers(name, field)]
    return parents[0] if parents else None


def _with_lock(name: str, setting: Setting, locks: Iterable[Lock]) -> Setting:
    for lock in locks:
        if touches(lock.field, name):
            return Setting(setting.value, setting.source, lock)
    return setting


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


def normalised(values: Table) -> Table:
    """Return the settings with short forms expanded to tables, so that later layers can set single
    fields of them."""
    expanded: Table = dict(values)
    if expanded.get("lora") is True:
        expanded["lora"] = {}
    if isinstance(expanded.get("warm_start"), str):
        expanded["warm_start"] = {"source": expanded["warm_start"]}
    if expanded.get("sampling") is not None:
        expanded["sampling"] = as_table(expanded["sampling"])
    if isinstance(guards := expanded.get("guards"), Mapping):
        expanded["guards"] = {
            name: {"action": given} if isinstance(given, str) else given
            for name, given in guards.items()
        }
    return expanded


# ------------------------------------------------------------------ `--set` of the command

_MAX_PARTS = 8  # of a name


def assigned(assignments: Sequence[str], values: Table) -> Table:
    """Add the assignments to `values`, in place, and return it. Values are JSON; any other text is
    a string. A short form, such as `sampling=2`, and single fields of its table, such as
    `sampling.wait_seconds=60`, may be given together, in any order."""
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        parts = name.strip().split(".")
        if not equals or not all(parts) or len(parts) > _MAX_PARTS:
            raise InvalidInput(f"--set needs NAME=VALUE, as in lora.r=8; got {assignment[:100]!r}")
        _assign(values, parts, _value(text))
    return values


def _assign(values: Table, parts: Sequence[str], value: Any) -> None:
    *tables, last = parts
    if tables and values.get(tables[0]) is not None:
        values |= normalised({tables[0]: values[tables[0]]})
    target = values
    for table in tables:
        existing = target.get(table)
        target[table] = dict(existing) if isinstance(existing, dict) else {}
        target = target[table]
    existing, expanded = target.get(last), _expanded(parts, value)
    if isinstance(existing, dict) and isinstance(expanded, dict) and not isinstance(value, dict):
        target[last] = {**existing, **expanded}
    else:
        target[last] = value


def _expanded(parts: Sequence[str], value: Any) -> Any:
    """Return the value of a setting with its short form expanded."""
    table: Table = {parts[-1]: value}
    for part in reversed(parts[:-1]):
        table = {part: table}
    expanded: Any = normalised(table)
    for part in parts:
        expanded = expanded[part]
    return expanded


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()
