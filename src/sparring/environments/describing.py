"""`python -m sparring.environments.describing FILE:CLASS`: what an environment says of itself.

Runs the file, so it is a process of its own, started by the control plane without secrets and
under a deadline. What the file prints goes nowhere; the description goes to a descriptor that
the file does not know of.
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
from sparring.environments.environment import Environment
from sparring.environments.loading import load_class


def describe(kind: type[Environment]) -> dict[str, Any]:
    return {
        "name": kind.name or kind.__name__,
        "fields": [_field(name, field) for name, field in kind.Config.model_fields.items()],
        "settings": to_jsonable_python(dict(kind.settings), fallback=repr),
        "measures": [_name_of(each) for each in kind.measures],
        "services": [dataclasses.asdict(each) for each in kind.services],
        "needs_sandbox": kind.needs_sandbox,
    }


def _field(name: str, field: FieldInfo) -> dict[str, Any]:
    default = None if field.default is PydanticUndefined else field.default
    return {
        "name": name,
        "type": _in_words(field.annotation),
        "required": field.is_required(),
        "default": to_jsonable_python(default, fallback=repr),
        "description": field.description or "",
        "json_schema": _schema(field),
    }


def _schema(field: FieldInfo) -> dict[str, Any]:
    """Of one field alone; nothing where its kind has no words in JSON."""
    try:
        made: Any = create_model
        alone = made("Alone", value=(field.annotation, field))
        schema = alone.model_json_schema(by_alias=False)
    except Exception:
        return {}
    own = dict(next(iter(schema["properties"].values())))
    return {**own, "$defs": schema["$defs"]} if "$defs" in schema else own


def _name_of(measure: Any) -> str:
    if isinstance(measure, str):
        return measure
    return str(getattr(measure, "name", getattr(measure, "__name__", repr(measure))))


def _in_words(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation).replace("typing.", "")


def main(target: str) -> int:
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        told = describe(load_class(target))
    except SparringError as error:
        told = {"name": target, "error": str(error)}
    except Exception as error:
        told = {"name": target, "error": f"{type(error).__name__}: {error}"}
    with os.fdopen(answer, "w") as out:
        out.write(json.dumps(told))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    os._exit(code)  # threads that the file started must not keep it alive
