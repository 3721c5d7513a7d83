"""The values of settings: merges layers under locks, and checks the result.

Each name gets one value, with its source and its lock. A later layer overrides an earlier one,
except in locked fields. `lora.r` is the dotted name of `r` in the table `lora`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError as JsonSchemaError
from jsonschema.validators import extend
from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaError as PydanticSchemaError
from pydantic_core import SchemaValidator, core_schema

from sparring.contracts.environments import FieldDescription
from sparring.contracts.errors import ConfigError, SettingError
from sparring.contracts.json import JsonSchema
from sparring.contracts.specs import PlaySettings, Supervision, Table
from sparring.contracts.training import as_table
from sparring.settings.fields import MODELS, PLAY, Kind, ModelSettings, ProcessSettings, nearest
from sparring.settings.locks import UNSET, Lock, covers, touches

Model = TypeVar("Model", bound=BaseModel)

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


def defaults(kind: Kind, fields: Sequence[FieldDescription]) -> Table:
    """Return the default of every setting, and of every optional field of an environment's
    config."""
    values: Table = {}
    for model in MODELS[kind]:
        values |= normalised(model().model_dump(mode="json"))
    return {**values, "config": {each.name: each.default for each in fields if not each.required}}


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


# ------------------------------------------------------------------ values that are refused

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


# ------------------------------------------------------------------ types


@dataclass(frozen=True, slots=True)
class CheckedSettings:
    """The validated settings of a run. An evaluation has the default `processes`."""

    play: PlaySettings
    model: ModelSettings
    processes: ProcessSettings
    supervision: Supervision
    config: Table

    def by_name(self) -> Table:
        """Return all settings by dotted name."""
        models = (self.play, self.model, self.processes, self.supervision)
        values = {
            name: value for model in models for name, value in model.model_dump(mode="json").items()
        }
        return dict(flatten({**values, "config": self.config}))


def check_types(
    resolved: Resolved, kind: Kind, fields: Sequence[FieldDescription]
) -> CheckedSettings:
    """Validate all settings and the environment's config. Raises SettingError or ConfigError with
    the field and its place."""
    values = resolved.values()
    return CheckedSettings(
        play=_validated(PLAY[kind], values, resolved),
        model=_validated(ModelSettings, values, resolved),
        processes=_validated(ProcessSettings, values, resolved),
        supervision=_validated(Supervision, values, resolved),
        config=_checked_config(values.get("config", {}), fields, resolved),
    )


def _validated(model: type[Model], values: Table, resolved: Resolved) -> Model:
    given = {name: values[name] for name in model.model_fields if name in values}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise SettingError(_error_text(error, resolved, model)) from error


def _checked_config(config: Any, fields: Sequence[FieldDescription], resolved: Resolved) -> Table:
    """Return the config fields that a layer sets. Defaults are left out: the environment applies
    them itself, and JSON may not be able to express them."""
    known = {each.name: each for each in fields}
    if not isinstance(config, dict):
        place = resolved.source_of("config")
        raise SettingError(f"{place}: config must be a table, not {config!r}")
    given = {
        name: value
        for name, value in config.items()
        if resolved.source_of(f"config.{name}") != DEFAULTS
    }
    for name, value in given.items():
        place = resolved.source_of(f"config.{name}")
        if name not in known:
            hint = nearest(name, known, "config.") or f"config fields: {', '.join(known) or 'none'}"
            raise ConfigError(f"{place}: config.{name}: there is no such field; {hint}")
        if problem := _problem(value, known[name].json_schema):
            raise ConfigError(f"{place}: config.{name}: {problem}")
    for name, field in known.items():
        if field.required and name not in given:
            raise SettingError(
                f"config.{name}: the environment requires it ({field.type}); set it in the project "
                "file, or for this run"
            )
    return given


def _fits_pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[JsonSchemaError]:
    """Validate `pattern` with pydantic's regex engine, which matches in linear time; a hostile
    value could stall Python's `re`."""
    if not isinstance(value, str):
        return
    try:
        check = SchemaValidator(core_schema.str_schema(pattern=pattern))
    except PydanticSchemaError:  # pydantic's engine does not support the pattern
        return
    try:
        check.validate_python(value)
    except ValidationError:
        yield JsonSchemaError(f"{value[:80]!r} does not match {pattern[:80]!r}")


_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"pattern": _fits_pattern, "patternProperties": None}
)


def _problem(value: Any, schema: JsonSchema) -> str:
    """Return an error text if a value does not fit a schema, else an empty string. A schema that
    cannot be applied here is left to pydantic, in the environment."""
    try:
        error = next(iter(_Validator(schema).iter_errors(value)), None)
    except (re.error, SchemaError, ValueError, RecursionError):
        return ""
    return "" if error is None else error.message[:300]


def _error_text(error: ValidationError, resolved: Resolved, model: type[BaseModel]) -> str:
    lines = []
    for problem in error.errors():
        path = [
            str(part) for part in problem["loc"] if not str(part).startswith(("function-", "union"))
        ]
        name = _as_given(".".join(path), resolved)
        place = resolved.source_of(name)
        if problem["type"] == "missing":
            name = f"{name}.{path[-1]}"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = _unknown_text(name, model)
        lines.append(f"{place}: {name}: {message}")
    return "\n".join(dict.fromkeys(lines))


def _as_given(dotted: str, resolved: Resolved) -> str:
    """Return the longest prefix that names a setting or a table of settings. Pydantic appends the
    types that it tried."""
    parts = dotted.split(".")
    given = {".".join(name.split(".")[:n]) for name in resolved.settings for n in range(1, 9)}
    while len(parts) > 1 and ".".join(parts) not in given:
        parts.pop()
    return ".".join(parts)


def _unknown_text(name: str, model: type[BaseModel]) -> str:
    *tables, last = name.split(".")
    known: Sequence[str] = list(model.model_fields)
    for table in tables:
        field = model.model_fields.get(table)
        inner = getattr(field, "annotation", None)
        types = [inner, *getattr(inner, "__args__", ())]
        models = [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]
        if not models:
            return "there is no such setting"
        model = models[0]
        known = list(model.model_fields)
    hint = nearest(last, known) or f"there are {', '.join(known)}"
    return f"there is no such setting; {hint}"
