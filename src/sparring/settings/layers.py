"""Resolves each setting to one value: later layers override earlier ones, except locked fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.settings.locks import UNSET, Lock
from sparring.settings.names import covers, flatten, nested, touches

DEFAULTS = "defaults"  # the source of values that no layer sets


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one source.

    `places` maps dotted names to their lines, if the source is a file. `is_written` means that a
    person wrote the layer for this project: it is the project file or the command.
    """

    source: str
    values: Mapping[str, Any]
    places: Mapping[str, str] | None = None
    is_written: bool = False
    is_command: bool = False

    def flat(self) -> Iterable[tuple[str, Any]]:
        """Yield the values with their dotted names."""
        return flatten(self.values)

    def source_of(self, name: str) -> str:
        """Return the line of a value, else of the nearest table around it, else the source."""
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

    def values(self) -> dict[str, Any]:
        """Return the values as nested tables."""
        return nested({name: setting.value for name, setting in self.settings.items()})

    def source_of(self, name: str) -> str:
        """Return the source of a value; for a name without a value of its own, that of the first
        setting that contains it or is inside it."""
        if name in self.settings:
            return self.settings[name].source
        for other, setting in self.settings.items():
            if touches(other, name):
                return setting.source
        return DEFAULTS


def resolve(layers: Sequence[Layer], locks: Sequence[Lock], *, is_operator: bool) -> Resolved:
    """Merge the layers; later ones override earlier ones, except locked fields.

    A layer that a person wrote (the project file, the command) is refused if it contradicts a
    lock. Where a default or an environment contradicts one, the lock's value is used.
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
            for name, value in layer.flat():
                if layer.is_written:
                    _refuse_locked(locked, locks_with_value, name, value, layer.source_of(name))
                _put(below_command, name, Setting(value, layer.source_of(name)))
    for name, setting in locked.items():
        _put(below_command, name, setting)
    run_settings = dict(below_command)
    for layer in layers:
        if layer.is_command:
            for name, value in layer.flat():
                _refuse_locked(below_command, binding, name, value, layer.source_of(name))
                _put(run_settings, name, Setting(value, layer.source_of(name)))
    return Resolved({name: _with_lock(name, run_settings[name], binding) for name in run_settings})


def _put(settings: dict[str, Setting], name: str, setting: Setting) -> None:
    """Set `name`. A plain value replaces a table of that name, and a value inside a table replaces
    a plain value of the table's name. An empty table does not clear an existing one."""
    if setting.value == {} and any(each != name and covers(name, each) for each in settings):
        return
    for other in [each for each in settings if each != name and touches(each, name)]:
        del settings[other]
    settings[name] = setting


def _refuse_locked(
    current: Mapping[str, Setting], locks: Iterable[Lock], name: str, value: Any, requested_by: str
) -> None:
    """Raise if setting a value contradicts a lock.

    Repeating the current value is allowed. A plain value may stand in place of the table that would
    hold the locked field. Replacing it with a table contradicts the lock, even if the table does
    not set the locked field.
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
    """Whether two values are equal at every level. `True` and `1` are not equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _current_value(settings: Mapping[str, Setting], field: str) -> Any:
    """Return a field's value or table, else the plain value in place of a table around it."""
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
