"""`python -m sparring.environments.self_description FILE:CLASS` describes a class as JSON.

The command runs the file, so the control plane starts it as a separate process with a deadline
and without secrets; if that fails for the owner, once more with all variables. Output of the file
to stdout is discarded; the description is written to a duplicate of the original stdout.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

from pydantic import create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from sparring.contracts.errors import SparringError
from sparring.environments.environment import Environment, listed
from sparring.environments.loading import load_class


def describe(kind: type[Environment]) -> dict[str, Any]:
    """Return a class's name, config fields, settings, measures and services as JSON values."""
    return {
        "name": kind.name or kind.__name__,
        "fields": [_field(name, field) for name, field in kind.Config.model_fields.items()],
        "settings": to_jsonable_python(dict(kind.settings), fallback=repr),
        "measures": [_name_of(each) for each in listed(kind.__name__, kind.measures)],
        "services": to_jsonable_python([dataclasses.asdict(each) for each in kind.services]),
        "needs_sandbox": kind.needs_sandbox,
    }


def _field(name: str, field: FieldInfo) -> dict[str, Any]:
    default = None if field.default is PydanticUndefined else field.default
    return {
        "name": name,
        "type": _as_text(field.annotation),
        "required": field.is_required(),
        "default": to_jsonable_python(default, fallback=repr),
        "description": field.description or "",
        "json_schema": _schema(field),
    }


def _schema(field: FieldInfo) -> dict[str, Any]:
    """Return the JSON schema of one field; empty if its type has none."""
    try:
        create: Any = create_model
        model = create("Alone", value=(field.annotation, field))
        schema = model.model_json_schema(by_alias=False)
    except Exception:
        return {}
    own = dict(next(iter(schema["properties"].values())))
    return {**own, "$defs": schema["$defs"]} if "$defs" in schema else own


def _name_of(measure: Any) -> str:
    if isinstance(measure, str):
        return measure
    return str(getattr(measure, "name", getattr(measure, "__name__", repr(measure))))


def _as_text(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation).replace("typing.", "")


def main(target: str) -> int:
    """Write the description of `target` to stdout as JSON; if loading or describing fails,
    it has `error`."""
    stdout = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        description = describe(load_class(target))
    except SparringError as error:
        description = {"name": target, "error": str(error)}
    except Exception as error:
        description = {"name": target, "error": f"{type(error).__name__}: {error}"}
    with os.fdopen(stdout, "w") as out:
        out.write(json.dumps(description))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    os._exit(code)  # threads that the file started must not keep the process alive
