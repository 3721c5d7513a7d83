"""`python -m sparring.surfaces.web.openapi`: prints the OpenAPI document of the HTTP API.

The document is generated from the registry of operations. The types of the app
are generated from it.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema

from sparring.contracts.json import JsonObject
from sparring.operations.operation import OWNER_ONLY, Operation
from sparring.surfaces.web.calls import web_operations

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def document() -> JsonObject:
    """Return the OpenAPI document: one path for each operation."""
    operations = web_operations()
    models: dict[type, str] = {}
    for each in operations.values():
        models[each.request], models[each.result] = "validation", "serialization"
    references, definitions = models_json_schema(
        list(models.items()),  # type: ignore[arg-type]
        ref_template="#/components/schemas/{model}",
    )
    schemas = _without_marks(definitions.get("$defs", {}))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sparring", "version": version("sparring")},
        "paths": {
            f"/api/{name}": _path(each, references, models) for name, each in operations.items()
        },
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _path(
    operation: Operation[Any, Any], references: dict[Any, Any], models: dict[type, str]
) -> JsonObject:
    request = references[(operation.request, models[operation.request])]
    result = references[(operation.result, models[operation.result])]
    content = {"content": {"application/json": {"schema": result}}}
    refused = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    described = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"{operation.about}\n\nRole: {operation.role.name.lower()}.",
        "responses": {
            "200": {"description": "the result", **content},
            "4XX": {"description": "an error, with the reason", **refused},
        },
    }
    body = {"required": True, "content": {"application/json": {"schema": request}}}
    return {"post": {**described, "requestBody": body}}


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_marks(each) for name, each in value.items() if name != OWNER_ONLY}
    return [_without_marks(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    print(json.dumps(document(), indent=1))
