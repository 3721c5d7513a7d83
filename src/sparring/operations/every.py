"""All operations, for surfaces that offer every verb: whoever reads the registry before all of
them are declared sees only some."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from sparring.operations.operation import REGISTRY, Operation

_MODULES = (
    "chatting",
    "checking",
    "doctor",
    "environments",
    "evaluating",
    "models",
    "permissions",
    "plans.planning",
    "proving",
    "reporting",
    "rollouts",
    "run_control",
    "runs",
    "record.reading",
    "training",
)


def every_operation() -> Mapping[str, Operation[Any, Any]]:
    for module in _MODULES:
        importlib.import_module(f"sparring.operations.{module}")
    return dict(sorted(REGISTRY.items()))
