"""Collects the operations of all modules that declare them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from sparring.operations.operation import REGISTRY, Operation

_MODULES = (
    "chatting",
    "checking",
    "curves",
    "doctor",
    "environments",
    "evaluating",
    "models",
    "permissions",
    "plans.planning",
    "plans.reviewing",
    "proving",
    "placing",
    "reporting",
    "rollout_groups",
    "rollout_pairs",
    "rollouts",
    "run_details",
    "run_control",
    "runs",
    "shipping",
    "activity.reading",
    "token_views",
    "tokens",
    "training",
)


def all_operations() -> Mapping[str, Operation[Any, Any]]:
    """Import every module that declares operations, and return all operations, sorted by name."""
    for module in _MODULES:
        importlib.import_module(f"sparring.operations.{module}")
    return dict(sorted(REGISTRY.items()))
