"""One value for each setting, from layers that go over each other, under locks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.settings.locks import UNSET, Lock
from sparring.settings.names import covers, flatten, nested, touches

DEFAULTS = "defaults"  # the source of what nobody set


@dataclass(frozen=True, slots=True)
class Layer:
    """Values of one source. `places` tells the line of a value, where its source has lines;
    `is_written` says that a person wrote it for this project."""

    source: str
    values: Mapping[str, Any]
    places: Mapping[str, str] | None = None
    is_written: bool = False
    is_command: bool = False

    def flat(self) -> Iterable[tuple[str, Any]]:
        return flatten(self.values)

    def source_of(self, name: str) -> str:
        """Where a value stands: the line of it, or of the nearest table around it."""
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
    """One resolved value."""

    value: Any
    source: str
    lock: Lock | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every value, by its dotted name."""

    settings: Mapping[str, Setting]

    def values(self) -> dict[str, Any]:
        return nested({name: setting.value for name, setting in self.settings.items()})

    def source_of(self, name: str) -> str:
        """Of a value, or of the nearest one around or inside of it."""
        if name in self.settings:
            return self.settings[name].source
        for other, setting in self.settings.items():
            if touches(other, name):
                return setting.source
        return DEFAULTS


def resolve(layers: Sequence[Layer], locks: Sequence[Lock], *, is_operator: bool) -> Resolved:
    """Later layers go over earlier ones; what a lock holds, nothing changes.

    A layer that a person wrote (the project file, the command) and that contradicts a lock is
    refused rather than overruled in silence. Defaults and environments are overruled.
    """
    binding = [lock for lock in locks if lock.binds_owner or is_operator]
    with_value = [lock for lock in binding if lock.value is not UNSET]
    fixed: dict[str, Setting] = {}
    for lock in with_value:
        for name, value in flatten({lock.field: lock.value}):
            _put(fixed, name, Setting(value, lock.source))
    below: dict[str, Setting] = {}
    for layer in layers:
        if not layer.is_command:
            for name, value in layer.flat():
                if layer.is_written:
                    _refuse_locked(fixed, with_value, name, value, layer.source_of(name))
                _put(below, name, Setting(value, layer.source_of(name)))
    for name, setting in fixed.items():
        _put(below, name, setting)
    settled = dict(below)
    for layer in layers:
        if layer.is_command:
            for name, value in layer.flat():
                _refuse_locked(below, binding, name, value, layer.source_of(name))
                _put(settled, name, Setting(value, layer.source_of(name)))
    return Resolved({name: _with_lock(name, settled[name], binding) for name in settled})


def _put(settings: dict[str, Setting], name: str, setting: Setting) -> None:
    """A value takes the place of a table of that name, and of a value where its table goes. An
    empty table only says that there is one."""
    if setting.value == {} and any(each != name and covers(name, each) for each in settings):
        return
    for other in [each for each in settings if each != name and touches(each, name)]:
        del settings[other]
    settings[name] = setting


def _refuse_locked(
    held: Mapping[str, Setting], locks: Iterable[Lock], name: str, value: Any, asked_by: str
) -> None:
    """Asking for the locked value itself is no contradiction; setting something in a table that
    is not there, around a locked field, is one."""
    for lock in locks:
        around = [each for each in held if each != lock.field and covers(each, lock.field)]
        makes_room = any(each != name and covers(each, name) for each in around)
        if not touches(lock.field, name) and not makes_room:
            continue
        if name in held and same(held[name].value, value):
            continue
        if value == {} and any(each != name and covers(name, each) for each in held):
            continue
        raise lock.refusal(asked_by, name, _held(held, lock.field), value)


def same(one: Any, other: Any) -> bool:
    """Equal, and of one kind all the way down: `True == 1` in Python, and is no number here."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _held(settings: Mapping[str, Setting], field: str) -> Any:
    """What a field is now: a value, a table, or the value in whose place its table would be."""
    inside = {name: each.value for name, each in settings.items() if covers(field, name)}
    if field in inside:
        return inside[field]
    if inside:
        return nested({name.removeprefix(f"{field}."): value for name, value in inside.items()})
    around = [each.value for name, each in settings.items() if covers(name, field)]
    return around[0] if around else None


def _with_lock(name: str, setting: Setting, locks: Iterable[Lock]) -> Setting:
    for lock in locks:
        if touches(lock.field, name):
            return Setting(setting.value, setting.source, lock)
    return setting
