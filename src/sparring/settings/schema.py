"""The JSON Schema of a project file, so that editors complete and check `sparring.toml`."""

from __future__ import annotations

from typing import get_args

from pydantic import BaseModel

from sparring.contracts.guards import Action
from sparring.contracts.json import JsonObject
from sparring.contracts.sampling import SamplingServers
from sparring.contracts.specs import Supervision
from sparring.settings.fields import BESIDES, MODELS, Kind, known_names
from sparring.settings.project_file import Budget, LockTable, OperatorsTable, ProjectTable

Schema = JsonObject


def project_file_schema() -> Schema:
    """Build the schema from the models that validate the file."""
    definitions: Schema = {}
    settings = _settings("train", definitions)
    evaluation = _settings("eval", definitions)
    environment = _closed(
        {
            "settings": settings,
            "eval": evaluation,
            "config": {"type": "object", "description": "fields of the environment's own config"},
        }
    )
    tables = {
        "project": _model(ProjectTable, definitions),
        "settings": settings,
        "sampling": _model(SamplingServers, definitions),
        "eval": {**evaluation, "description": "settings of evaluations; override [settings]"},
        "environment": {
            "type": "object",
            "additionalProperties": environment,
            "description": "settings and config of one environment, by its name",
        },
        "lock": {"type": "array", "items": _model(LockTable, definitions)},
        "budget": _model(Budget, definitions),
        "operators": _model(OperatorsTable, definitions),
    }
    actions = {"enum": list(get_args(Action)), "description": "the guard's action"}
    definitions["Guard"] = {"anyOf": [actions, definitions["Guard"]]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sparring.toml",
        **_closed(tables),
        "$defs": definitions,
    }


def _settings(kind: Kind, definitions: Schema) -> Schema:
    properties: Schema = {}
    for model in (MODELS[kind], Supervision):
        properties |= _model(model, definitions)["properties"]
    for name, (type_, _, description) in BESIDES.items():
        if name in known_names(kind):
            is_number = type_ is int
            properties[name] = {
                "type": "integer" if is_number else "string",
                "description": description,
                **({"minimum": 1} if is_number else {}),
            }
    return _closed(properties)


def _model(model: type[BaseModel], definitions: Schema) -> Schema:
    schema = model.model_json_schema()
    definitions |= schema.pop("$defs", {})
    return _short_forms(schema)


def _short_forms(schema: Schema) -> Schema:
    """Add the short forms that validators accept, such as `warm_start = "demos.jsonl"`."""
    properties = schema.get("properties", {})
    if "warm_start" in properties:
        properties["warm_start"]["anyOf"].insert(0, {"type": "string"})
    if "sampling" in properties:
        addresses = {"type": "array", "items": {"type": "string"}}
        properties["sampling"]["anyOf"] += [{"type": "integer"}, {"type": "string"}, addresses]
    if "report_to" in properties:
        table = properties["report_to"]
        properties["report_to"] = {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": table.get("description", ""),
        }
    return schema


def _closed(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}
