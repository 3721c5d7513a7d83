"""Summaries for tests, which name only the fields that they are about."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter

Model = TypeVar("Model")
Result = TypeVar("Result")


def complete(model: type[Model], given: Mapping[str, Any]) -> Model:
    """The model with these fields; what is missing and needed is empty, zero or None."""
    return TypeAdapter(model).validate_python(completed(model, given))


def completed(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The same as JSON values; the model may be a dataclass."""
    fields = dict(given)
    for name, annotation, is_required, default in _fields_of(model):
        if name in fields:
            fields[name] = _filled(annotation, fields[name])
        elif is_required:
            fields[name] = _empty(annotation)
        elif name == "kind":
            fields[name] = default
    return fields


def _fields_of(model: Any) -> list[tuple[str, Any, bool, Any]]:
    if issubclass(model, BaseModel):
        return [
            (name, field.annotation, field.is_required(), field.default)
            for name, field in model.model_fields.items()
        ]
    annotations = get_type_hints(model)
    return [
        (each.name, annotations[each.name], each.default is dataclasses.MISSING, each.default)
        for each in dataclasses.fields(model)
    ]


def completing(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, which takes a part of its first argument's fields."""
    model = next(iter(get_type_hints(function).values()))

    def call(given: Mapping[str, Any], *more: Any) -> Result:
        return function(complete(model, given) if _is_model(model) else given, *more)

    return call


def _filled(annotation: Any, value: Any) -> Any:
    options = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        models = [each for each in options if _is_model(each) or get_origin(each)]
        return _filled(models[0], value) if models and value is not None else value
    if get_origin(annotation) is tuple and isinstance(value, list | tuple):
        return [_filled(options[0], each) for each in value]
    if get_origin(annotation) is dict and isinstance(value, Mapping):
        return {name: _filled(options[1], each) for name, each in value.items()}
    if _is_model(annotation) and isinstance(value, Mapping):
        return completed(annotation, value)
    return value


def _empty(annotation: Any) -> Any:
    options = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return None if type(None) in options else 0
    if _is_model(annotation):
        return completed(annotation, {})
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return list(annotation)[-1].value
    return {tuple: [], dict: {}, str: "", int: 0, float: 0.0, bool: False}[
        get_origin(annotation) or annotation
    ]


def _is_model(annotation: Any) -> bool:
    is_class = isinstance(annotation, type)
    return is_class and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation))
