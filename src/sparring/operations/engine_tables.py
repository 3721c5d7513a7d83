"""Checks the tables `lora`, `quantization` and `engine` before a run exists.

Their fields are those of classes of PEFT, transformers and TRL. The control plane does not import
these packages; it reads the classes' source. A package that is not installed is not checked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from importlib.util import find_spec
from operator import or_
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from sparring.contracts.refused_settings import engine_problem, field_problem
from sparring.contracts.specs import Table
from sparring.contracts.training import TrainSettings

# The classes whose fields each table has, each as (path in its package, name).
_CLASSES: Mapping[str, Sequence[tuple[str, str]]] = {
    "lora": (
        ("peft/tuners/lora/config.py", "LoraConfig"),
        ("peft/config.py", "PeftConfig"),
        ("peft/config.py", "PeftConfigMixin"),
    ),
    "quantization": (("transformers/utils/quantization_config.py", "BitsAndBytesConfig"),),
    "engine": (
        ("trl/trainer/grpo_config.py", "GRPOConfig"),
        ("trl/trainer/base_config.py", "_BaseConfig"),
        ("transformers/training_args.py", "TrainingArguments"),
    ),
}
_SIMPLE = {each.__name__: each for each in (bool, int, float, str, list, dict)}
_ANYTHING: Any = object


def wrong_fields(tables: Mapping[str, object]) -> Mapping[str, str]:
    """Return what is wrong with fields of the tables, by field, as in `lora.r`: they do not exist,
    or have a wrong type."""
    return {
        f"{name}.{field}": problem
        for name in _CLASSES
        if isinstance(table := tables.get(name), dict)
        for field, problem in _problems(name, table)
    }


def _problems(table: str, values: Table) -> Iterator[tuple[str, str]]:
    known = fields_of(table) if values else {}
    if not known:
        return
    settings = TrainSettings.model_fields
    for name, value in values.items():
        problem = (
            engine_problem(name, known, settings)
            if table == "engine"
            else field_problem(name, known, f"{table}.")
        )
        if problem := problem or _type_problem(f"{table}.{name}", value, known.get(name)):
            yield name, problem


def _type_problem(name: str, value: Any, kind: Any) -> str:
    if kind in (None, _ANYTHING):
        return ""
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        return f"{name}: {error.errors()[0]['msg']}, not {value!r}"
    return ""


@cache
def fields_of(table: str) -> Mapping[str, Any]:
    """Return the types of a table's fields by name, `object` for types that are not simple. Empty
    if a package is not installed, or its source is not where it was."""
    fields: dict[str, Any] = {}
    for path, name in _CLASSES[table]:
        found = _class_in(path, name)
        if found is None:
            return {}
        fields = {**dict(_fields_of(found)), **fields}
    return fields


def _class_in(path: str, name: str) -> ast.ClassDef | None:
    package, _, inside = path.partition("/")
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return None
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder) / inside
        if not file.is_file():
            continue
        for statement in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.ClassDef) and statement.name == name:
                return statement
    return None


def _fields_of(found: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a dataclass, or the named arguments of another class."""
    for statement in found.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, _type_of(statement.annotation)
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            for argument in statement.args.args[1:]:
                yield argument.arg, _type_of(argument.annotation)


def _type_of(node: ast.expr | None) -> Any:
    """Return a simple type, or a union of simple types; `object` for any other."""
    match node:
        case ast.Name(id=name):
            return _SIMPLE.get(name, _ANYTHING)
        case ast.Constant(value=None):
            return type(None)
        case ast.Constant(value=str() as text):
            return _type_of(ast.parse(text, mode="eval").body)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _union([left, right])
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return _union([inner, ast.Constant(None)])
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=parts)):
            return _union(parts)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            return Literal[ast.literal_eval(inner)]
        case ast.Subscript(value=ast.Name(id="list" | "dict" as name)):
            return _SIMPLE[name]
    return _ANYTHING


def _union(parts: Sequence[ast.expr]) -> Any:
    types = [_type_of(each) for each in parts]
    return _ANYTHING if _ANYTHING in types else reduce(or_, types)
