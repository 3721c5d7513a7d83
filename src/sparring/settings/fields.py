"""All settings of each kind of run: their names, types, defaults and checks.

Users see one flat list of settings for play, training, the model and processes, and the table
`config`, whose fields each environment declares.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError as JsonSchemaError
from jsonschema.validators import extend
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import SchemaError as PydanticSchemaError
from pydantic_core import SchemaValidator, core_schema

from sparring.contracts.command_line import SHOWN
from sparring.contracts.environments import FieldDescription
from sparring.contracts.errors import ConfigError, SettingError
from sparring.contracts.json import JsonSchema
from sparring.contracts.refused_settings import OURS
from sparring.contracts.specs import Frozen, PlaySettings, Supervision, Table
from sparring.contracts.training import TrainSettings
from sparring.settings.layers import DEFAULTS, Resolved, flatten, normalised

Kind = Literal["train", "eval"]
Model = TypeVar("Model", bound=BaseModel)


class ModelSettings(Frozen):
    """The model that is played or trained."""

    model_config = ConfigDict(strict=True)

    model: Annotated[str | None, SHOWN] = Field(
        default=None,
        description="hub name, folder, tiny or smollm2; default: the agent's own model",
    )
    family: Annotated[str | None, SHOWN] = Field(
        default=None, description="chat format, if it is not recognised"
    )


class ProcessSettings(Frozen):
    """The processes of a training."""

    model_config = ConfigDict(strict=True)

    processes: Annotated[int, SHOWN] = Field(default=1, ge=1, description="processes on each host")
    nodes: Annotated[int, SHOWN] = Field(default=1, ge=1, description="hosts that train together")
    rendezvous: Annotated[str | None, SHOWN] = Field(
        default=None, description="HOST:PORT of one host, which all hosts reach"
    )


PLAY: Mapping[Kind, type[PlaySettings]] = {"train": TrainSettings, "eval": PlaySettings}
# The models that hold all settings of a kind of run, each setting in one of them.
MODELS: Mapping[Kind, Sequence[type[Frozen]]] = {
    "train": (TrainSettings, ModelSettings, ProcessSettings, Supervision),
    "eval": (PlaySettings, ModelSettings, Supervision),
}


def known_names(kind: Kind) -> list[str]:
    """Return the names of all settings of a kind of run."""
    return [*describe_settings(kind), "config"]


def describe_settings(kind: Kind = "train") -> dict[str, str]:
    """Return the description of each setting, by name."""
    return {
        name: field.description or ""
        for model in MODELS[kind]
        for name, field in model.model_fields.items()
    }


_OF_TRAINING = frozenset(known_names("train")) - {"config"}
# The settings that evaluations inherit from training.
PLAYED = frozenset(known_names("eval")) - {"num_generations", "seed"}


def defaults(kind: Kind, fields: Sequence[FieldDescription]) -> Table:
    """Return the default of every setting, and of every optional field of an environment's
    config."""
    values: Table = {}
    for model in MODELS[kind]:
        values |= normalised(model().model_dump(mode="json"))
    return {**values, "config": {each.name: each.default for each in fields if not each.required}}


@cache
def types_of_settings(kind: Kind = "train") -> Mapping[str, str]:
    """Return a short description of the type of each setting, by name."""
    types: dict[str, str] = {}
    for model in MODELS[kind]:
        schema = model.model_json_schema()
        for name, field in schema["properties"].items():
            types[name] = _type_text(field, schema.get("$defs", {}))
    return types


def _type_text(field: JsonSchema, definitions: JsonSchema) -> str:
    if reference := field.get("$ref"):
        return _type_text(definitions[reference.rpartition("/")[2]], definitions)
    if choices := field.get("enum"):
        return " | ".join(map(str, choices))
    if "const" in field:
        return str(field["const"])
    if parts := field.get("anyOf"):
        return " or ".join(dict.fromkeys(_type_text(part, definitions) for part in parts))
    if properties := field.get("properties"):
        return f"table of {', '.join(properties)}"
    if field.get("type") == "array":
        return f"list of {_type_text(field.get('items', {}), definitions)}"
    return {"object": "table"}.get(str(field.get("type")), str(field.get("type", "anything")))


def refuse_unknown(names: Iterable[str], place: str, known: Sequence[str]) -> None:
    """Raise SettingError for the first unknown name, with the nearest known name."""
    for name in names:
        if name in known:
            continue
        if name in OURS:
            raise SettingError(f"{place}: {name}: {OURS[name]}")
        hint = (
            nearest(name, known)
            or nearest(name, _OF_TRAINING - set(known), "train's setting ")
            or f"set TRL's own settings as engine.{name}"
        )
        raise SettingError(f"{place}: {name}: there is no such setting; {hint}")


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


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return "did you mean NAME?" for the closest known name; empty if none is close."""
    near = difflib.get_close_matches(name[:100], list(known), 1)
    return f"did you mean {prefix}{near[0]}?" if near else ""


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
