"""Sparring trains the agent you ship on the evals you already have.

Names are imported on first use, so `import sparring` loads neither torch nor the agents SDK. Errors
are in `sparring.errors`, ready-made measures in `sparring.measures`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparring.api.checking import audit as audit
    from sparring.api.checking import check as check
    from sparring.api.evaluation import evaluate as evaluate
    from sparring.api.proving import prove as prove
    from sparring.api.shipping import ship as ship
    from sparring.api.train_result import TrainResult as TrainResult
    from sparring.api.training import Trainer as Trainer
    from sparring.api.training import train as train
    from sparring.contracts.cases import Case as Case
    from sparring.contracts.cases import Split as Split
    from sparring.contracts.rollouts import Rollout as Rollout
    from sparring.contracts.specs import Service as Service
    from sparring.contracts.verdicts import Verdict as Verdict
    from sparring.contracts.verdicts import cannot_tell as cannot_tell
    from sparring.contracts.verdicts import failed as failed
    from sparring.contracts.verdicts import passed as passed
    from sparring.contracts.verdicts import scored as scored
    from sparring.environments import Environment as Environment
    from sparring.environments.examples import call as call
    from sparring.environments.examples import worked_example as worked_example
    from sparring.environments.workspace import Workspace as Workspace
    from sparring.measures import measure as measure
    from sparring.player.worlds import tool as tool
    from sparring.suites import Suite as Suite
    from sparring.surfaces.agents_tools import operator_tools as operator_tools

__version__ = "0.1.0"

_NAMES = {  # of each module; type checkers read the imports above instead
    "sparring.api.checking": "audit check",
    "sparring.api.evaluation": "evaluate",
    "sparring.api.proving": "prove",
    "sparring.api.shipping": "ship",
    "sparring.api.train_result": "TrainResult",
    "sparring.api.training": "Trainer train",
    "sparring.contracts.cases": "Case Split",
    "sparring.contracts.rollouts": "Rollout",
    "sparring.contracts.specs": "Service",
    "sparring.contracts.verdicts": "Verdict cannot_tell failed passed scored",
    "sparring.environments": "Environment",
    "sparring.environments.examples": "call worked_example",
    "sparring.environments.workspace": "Workspace",
    "sparring.measures": "measure",
    "sparring.player.worlds": "tool",
    "sparring.suites": "Suite",
    "sparring.surfaces.agents_tools": "operator_tools",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sparring' has no attribute {name!r}")
    if home.startswith("sparring.api"):  # imports torch
        from sparring.machine import share_machine

        share_machine()
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return __all__
