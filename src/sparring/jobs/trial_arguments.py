"""Chooses the arguments with which `sparring env test` calls each tool once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agents import FunctionTool

from sparring.contracts.cases import Case


def worked_arguments(case: Case) -> dict[str, str]:
    """Return the arguments of the worked calls in a case's input, by tool."""
    if isinstance(case.input, str):
        return {}
    calls = [item for item in case.input if item.get("type") == "function_call"]
    return {str(call.get("name")): str(call.get("arguments")) for call in calls}


_MADE_UP: Mapping[str, Any] = {
    "string": "example", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {},
}  # fmt: skip


def made_up_arguments(tool: FunctionTool) -> str:
    """Return JSON arguments of the types that the tool's schema declares."""
    fields = tool.params_json_schema.get("properties", {})
    arguments = {
        name: schema["enum"][0]
        if schema.get("enum")
        else _MADE_UP.get(str(schema.get("type")), "example")
        for name, schema in fields.items()
    }
    return json.dumps(arguments)
