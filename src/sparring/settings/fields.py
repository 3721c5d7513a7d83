"""The settings that there are: names, types and defaults, for each kind of run.

One flat list for whoever sets them: how rollouts are played and how the model learns, which
model, on how many processes; and `config`, the fields that an environment declares itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from sparring.contracts.environments import FieldDescription
from sparring.contracts.errors import SettingError
from sparring.contracts.refused_settings import OURS
from sparring.contracts.specs import PlaySettings
from sparring.contracts.training import TrainSettings
from sparring.settings.resolving import Resolved

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
    return [*MODELS[kind].model_fields, *besides, "config"]


def defaults(kind: Kind, fields: Sequence[FieldDescription]) -> dict[str, Any]:
    """The lowest layer."""
    values = MODELS[kind]().model_dump(mode="json")
    values |= {name: BESIDES[name][1] for name in BESIDES if name in known_names(kind)}
    values["config"] = {each.name: each.default for each in fields if not each.required}
    return values


def describe_settings(kind: Kind = "train") -> dict[str, str]:
    """What each setting is for, by name."""
    told = {name: field.description or "" for name, field in MODELS[kind].model_fields.items()}
    return told | {name: BESIDES[name][2] for name in BESIDES if name in known_names(kind)}


def refuse_unknown(names: Iterable[str], place: str, known: Sequence[str]) -> None:
    """Names that nothing answers to, with the nearest that something does."""
    for name in names:
        if name in known:
            continue
        if name in OURS:
            raise SettingError(f"{place}: {name}: {OURS[name]}")
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"TRL's own go to engine.{name}"
        raise SettingError(f"{place}: {name}: there is no such setting; {hint}")


def check_types(
    resolved: Resolved, kind: Kind, fields: Sequence[FieldDescription] | None
) -> dict[str, Any]:
    """The values, with types and limits checked; an error names the field and its place.

    Where an environment could not be described, its config is checked when it is loaded.
    """
    values = resolved.values()
    own = {name: values[name] for name in MODELS[kind].model_fields if name in values}
    try:
        MODELS[kind].model_validate(own)
    except ValidationError as error:
        raise SettingError(_told(error, resolved, MODELS[kind])) from error
    for name, (type_, _, _) in BESIDES.items():
        value = values.get(name)
        wrong = not isinstance(value, type_) or isinstance(value, bool)
        if value is not None and (wrong or (type_ is int and value < 1)):
            kinds = "a number from 1 upwards" if type_ is int else "a text"
            place = resolved.source_of(name)
            raise SettingError(f"{place}: {name} must be {kinds}, not {value!r}")
    if fields is not None:
        _check_config(values.get("config") or {}, fields, resolved)
    return values


def _check_config(config: Any, fields: Sequence[FieldDescription], resolved: Resolved) -> None:
    known = {each.name: each for each in fields}
    if not isinstance(config, dict):
        place = resolved.source_of("config")
        raise SettingError(f"{place}: config must be a table, not {config!r}")
    for name, value in config.items():
        place = resolved.source_of(f"config.{name}")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            listed = ", ".join(known) or "no fields"
            hint = f"did you mean config.{near[0]}?" if near else f"its config has {listed}"
            raise SettingError(f"{place}: config.{name}: there is no such field; {hint}")
        wrong = next(iter(Draft202012Validator(known[name].json_schema).iter_errors(value)), None)
        if wrong is not None:
            raise SettingError(f"{place}: config.{name}: {wrong.message[:300]}")
    for name, field in known.items():
        if field.required and name not in config:
            raise SettingError(
                f"config.{name}: the environment wants it ({field.type}); set it in the project "
                f"file, or with --set config.{name}=…"
            )


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
    near = difflib.get_close_matches(last, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"there is no such setting; {hint}"


def changed_from_defaults(resolved: Resolved) -> dict[str, str]:
    """Where values that are not defaults came from, for a run's spec."""
    return {
        name: setting.source
        for name, setting in resolved.settings.items()
        if setting.source != "defaults"
    }
