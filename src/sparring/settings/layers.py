"""Resolves each setting to one value: later layers override earlier ones, except locked fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.specs import Table
from sparring.settings.locks import UNSET, Lock
from sparring.settings.names import covers, flatten, nested, touches

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

    def flat(self) -> Iterable[tuple[str, Any]]:
        """Yield the values with their dotted names."""
        return flatten(self.values)

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

    def source_of(self, name: str) -> str:
        """Return the source of a value. For a name that has no value itself, return the source of
        the first setting whose name covers it or is covered by it, else DEFAULTS."""
        if name in self.settings:
            return self.settings[name].source
        for other, setting in self.settings.items():
            if touches(other, name):
                return setting.source
        return DEFAULTS


def resolve(layers: Sequence[Layer], locks: Sequence[Lock], *, is_operator: bool) -> Resolved:
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
