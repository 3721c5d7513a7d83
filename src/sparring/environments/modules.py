"""Environments without a class: a file whose variables and functions are the parts."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from sparring.contracts.environments import is_whole
from sparring.contracts.errors import InvalidInput
from sparring.environments.environment import Environment

_OF_CLASSES = {"name", "Config", "workspace", "address", "addresses", "add_addresses"}
_PARTS = {name for name in vars(Environment) if not name.startswith("_")} - _OF_CLASSES
_VALUES = {"agent", "suite"}  # a variable may hold what the method of a class returns


def environment_of(module: ModuleType) -> type[Environment] | None:
    """Return a class whose attributes are the variables and functions of a file that is an
    environment; None for any other file. Functions take no `self`. Raises InvalidInput if a part
    that must be a function is none."""
    parts = {name: value for name, value in vars(module).items() if name in _PARTS}
    if not is_whole(parts):
        return None
    name = module.__name__.rpartition(".")[2]
    attributes = {part: _attribute(f"{name}.{part}", value) for part, value in parts.items()}
    about = {"__doc__": inspect.getdoc(module), "__module__": module.__name__}
    return type(name, (Environment,), {**attributes, **about})


def _attribute(place: str, value: Any) -> Any:
    part = place.rpartition(".")[2]
    if not inspect.isfunction(inspect.getattr_static(Environment, part)):
        return value
    if part in _VALUES and not callable(value):
        return staticmethod(lambda: value)
    if not callable(value):
        raise InvalidInput(f"{place} must be a function, not {type(value).__name__}")
    return staticmethod(value)
