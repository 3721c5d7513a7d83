"""The settings that there are: names, types and defaults, for each kind of run.

One flat list for whoever sets them: how rollouts are played and how the model learns, which
model, on how many processes; and `config`, the fields that an environment declares itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError as JsonSchemaError
from jsonschema.validators import extend
from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaError as PydanticSchemaError
from pydantic_core import SchemaValidator, core_schema

from sparring.contracts.environments import FieldDescription
from sparring.contracts.errors import ConfigError, SettingError
from sparring.contracts.refused_settings import OURS
from sparring.contracts.specs import PlaySettings, Supervision
from sparring.contracts.training import TrainSettings
from sparring.settings.resolving import DEFAULTS, Resolved

Kind = Literal["train", "eval"]
MODELS: Mapping[Kind, type[BaseModel]] = {"train": TrainSettings, "eval": PlaySettings}
BESIDES: Mapping[str, tuple[type, Any, str]] = {
    "model": (str, None, "hub name, folder, tiny or smollm2; by default the agent's own"),
    "family": (str, None, "chat format, where it is not recognised"),
    "processes": (int, 1, "processes on each host"),
    "nodes": (int, 1, "hosts"),
    "rendezvous": (str, None, "HOST:PORT that all hosts reach"),
}
_OF_TRAINING_ONLY = ("processes", "nodes", "rendezvous")


def known_names(kind: Kind) -> list[str]:
    besides = [name for name in BESIDES if kind == "train" or name not in _OF_TRAINING_ONLY]
    return [*MODELS[kind].model_fields, *besides, *Supervision.model_fields, "config"]


# An evaluation is played as training is, but for how often and from which seed.
PLAYED = frozenset(known_names("eval")) - {"num_generations", "seed"}


def defaults(kind: Kind, fields: Sequence[FieldDescription]) -> dict[str, Any]:
    """The lowest layer."""
    values = normalised(MODELS[kind]().model_dump(mode="json"))
    values |= {name: BESIDES[name][1] for name in BESIDES if name in known_names(kind)}
    values |= Supervision().model_dump(mode="json")
    values["config"] = {each.name: each.default for each in fields if not each.required}
    return values


def describe_settings(kind: Kind = "train") -> dict[str, str]:
    """What each setting is for, by name."""
    fields = {**MODELS[kind].model_fields, **Supervision.model_fields}
    told = {name: field.description or "" for name, field in fields.items()}
    return told | {name: BESIDES[name][2] for name in BESIDES if name in known_names(kind)}


def types_of_settings(kind: Kind = "train") -> dict[str, str]:
    """What each setting may be, in few words."""
    told: dict[str, str] = {}
    for model in (MODELS[kind], Supervision):
        schema = model.model_json_schema()
        for name, field in schema["properties"].items():
            told[name] = _type_words(field, schema.get("$defs", {}))
    for name in BESIDES.keys() & set(known_names(kind)):
        told[name] = "integer" if BESIDES[name][0] is int else "string or null"
    return told


def _type_words(field: Mapping[str, Any], named: Mapping[str, Any]) -> str:
    if reference := field.get("$ref"):
        return _type_words(named[reference.rpartition("/")[2]], named)
    if choices := field.get("enum"):
        return " | ".join(map(str, choices))
    if "const" in field:
        return str(field["const"])
    if parts := field.get("anyOf"):
        return " or ".join(dict.fromkeys(_type_words(each, named) for each in parts))
    if inside := field.get("properties"):
        return f"table of {', '.join(inside)}"
    if field.get("type") == "array":
        return f"list of {_type_words(field.get('items', {}), named)}"
    return {"object": "table"}.get(str(field.get("type")), str(field.get("type", "anything")))


def refuse_unknown(names: Iterable[str], place: str, known: Sequence[str]) -> None:
    """Names that nothing answers to, with the nearest that something does."""
    for name in names:
        if name in known:
            continue
        if name in OURS:
            raise SettingError(f"{place}: {name}: {OURS[name]}")
        hint = nearest(name, known) or f"TRL's own go to engine.{name}"
        raise SettingError(f"{place}: {name}: there is no such setting; {hint}")


def check_types(
    resolved: Resolved, kind: Kind, fields: Sequence[FieldDescription]
) -> dict[str, Any]:
    """The values, with types and limits checked; an error names the field and its place."""
    values = resolved.values()
    for model in (MODELS[kind], Supervision):
        own = {name: values[name] for name in model.model_fields if name in values}
        try:
            model.model_validate(own)
        except ValidationError as error:
            raise SettingError(_told(error, resolved, model)) from error
    for name, (type_, _, _) in BESIDES.items():
        if name not in values or (values[name] is None and type_ is not int):
            continue
        value = values[name]
        wrong = not isinstance(value, type_) or isinstance(value, bool)
        if wrong or (type_ is int and value < 1):
            kinds = "a number from 1 upwards" if type_ is int else "a text"
            place = resolved.source_of(name)
            raise SettingError(f"{place}: {name} must be {kinds}, not {str(value)[:80]!r}")
    values["config"] = _checked_config(values.get("config", {}), fields, resolved)
    return values


def _checked_config(
    config: Any, fields: Sequence[FieldDescription], resolved: Resolved
) -> dict[str, Any]:
    """What somebody set of an environment's config. Its own defaults it knows better: they may be
    of kinds that cannot be written down."""
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
            hint = nearest(name, known, "config.") or f"its config has {', '.join(known) or 'none'}"
            raise ConfigError(f"{place}: config.{name}: there is no such field; {hint}")
        if problem := _problem(value, known[name].json_schema):
            raise ConfigError(f"{place}: config.{name}: {problem}")
    for name, field in known.items():
        if field.required and name not in given:
            raise SettingError(
                f"config.{name}: the environment wants it ({field.type}); set it in the project "
                "file, or for this run"
            )
    return given


def _fits_pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[JsonSchemaError]:
    """By an engine whose time does not explode: a value may be chosen to make Python's."""
    if not isinstance(value, str):
        return
    try:
        check = SchemaValidator(core_schema.str_schema(pattern=pattern))
    except PydanticSchemaError:  # of another dialect
        return
    try:
        check.validate_python(value)
    except ValidationError:
        yield JsonSchemaError(f"{value[:80]!r} does not match {pattern[:80]!r}")


_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"pattern": _fits_pattern, "patternProperties": None}
)


def _problem(value: Any, schema: Mapping[str, Any]) -> str:
    """What a schema has against a value. One that JSON Schema does not understand, such as a
    pattern of another dialect, has nothing: pydantic will see."""
    try:
        wrong = next(iter(_Validator(schema).iter_errors(value)), None)
    except (re.error, SchemaError, ValueError, RecursionError):
        return ""
    return "" if wrong is None else wrong.message[:300]


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """`did you mean …?`, where something known is near enough."""
    near = difflib.get_close_matches(name[:100], list(known), 1)
    return f"did you mean {prefix}{near[0]}?" if near else ""


def normalised(values: Mapping[str, Any]) -> dict[str, Any]:
    """The short ways to say a table, as that table, so that layers can add to it."""
    long: dict[str, Any] = dict(values)
    if long.get("lora") is True:
        long["lora"] = {}
    for name, field in (("warm_start", "source"), ("vllm", "mode")):
        if isinstance(long.get(name), str):
            long[name] = {field: long[name]}
    if isinstance(guards := long.get("guards"), Mapping):
        long["guards"] = {
            name: {"action": given} if isinstance(given, str) else given
            for name, given in guards.items()
        }
    return long


def _told(error: ValidationError, resolved: Resolved, model: type[BaseModel]) -> str:
    lines = []
    for problem in error.errors():
        path = [
            str(part) for part in problem["loc"] if not str(part).startswith(("function-", "union"))
        ]
        name = _as_given(".".join(path), resolved)
        place = resolved.source_of(name)
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = _no_such(name, model)
        lines.append(f"{place}: {name}: {message}")
    return "\n".join(dict.fromkeys(lines))


def _as_given(dotted: str, resolved: Resolved) -> str:
    """The longest beginning that somebody set: what follows is how types are tried out."""
    parts = dotted.split(".")
    given = {".".join(name.split(".")[:n]) for name in resolved.settings for n in range(1, 9)}
    while len(parts) > 1 and ".".join(parts) not in given:
        parts.pop()
    return ".".join(parts)


def _no_such(name: str, model: type[BaseModel]) -> str:
    *tables, last = name.split(".")
    known: Sequence[str] = list(model.model_fields)
    for table in tables:
        field = model.model_fields.get(table)
        inner = getattr(field, "annotation", None)
        kinds = [inner, *getattr(inner, "__args__", ())]
        found = [each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)]
        if not found:
            return "there is no such setting"
        model = found[0]
        known = list(model.model_fields)
    hint = nearest(last, known) or f"there are {', '.join(known)}"
    return f"there is no such setting; {hint}"


def changed_from_defaults(resolved: Resolved) -> dict[str, str]:
    """Where values that are not defaults came from, for a run's spec."""
    return {
        name: setting.source
        for name, setting in resolved.settings.items()
        if setting.source != DEFAULTS
    }
