"""All settings of each kind of run: their names, types and descriptions.

Users see one flat list of settings for play, training, the model and processes, and the table
`config`, whose fields each environment declares.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sparring.contracts.command_line import SHOWN
from sparring.contracts.errors import SettingError
from sparring.contracts.json import JsonSchema
from sparring.contracts.refused_settings import OURS
from sparring.contracts.specs import Frozen, PlaySettings, Supervision
from sparring.contracts.training import TrainSettings

Kind = Literal["train", "eval"]


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


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return "did you mean NAME?" for the closest known name; empty if none is close."""
    near = difflib.get_close_matches(name[:100], list(known), 1)
    return f"did you mean {prefix}{near[0]}?" if near else ""
