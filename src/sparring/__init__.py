"""Sparring trains the agent you ship on the evals you already have.

Names are imported on first use, so `import sparring` loads neither torch nor the agents SDK.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparring.api.evaluation import EvalResult, evaluate, prove
    from sparring.api.train_result import TrainResult
    from sparring.api.training import Trainer, train
    from sparring.contracts.cases import Case, Split
    from sparring.contracts.errors import SparringError
    from sparring.contracts.rollouts import Rollout
    from sparring.contracts.services import Service
    from sparring.contracts.verdicts import Verdict, cannot_tell, failed, passed, scored
    from sparring.environments import Environment
    from sparring.environments.workspace import Workspace
    from sparring.measures import measure
    from sparring.measures.builtin import (
        contains,
        exact,
        json_schema,
        length,
        no_tool_failed,
        numeric,
        regex,
        tool_called,
    )
    from sparring.measures.llm_judge import llm_judge
    from sparring.player.worlds import tool
    from sparring.sandbox import SandboxLimits
    from sparring.suites import Suite
    from sparring.surfaces.agents_tools import operator_tools

__version__ = "0.1.0"

_HOMES = {
    "Case": "sparring.contracts.cases",
    "Split": "sparring.contracts.cases",
    "SparringError": "sparring.contracts.errors",
    "Rollout": "sparring.contracts.rollouts",
    "SandboxLimits": "sparring.sandbox",
    "Service": "sparring.contracts.services",
    "Workspace": "sparring.environments.workspace",
    "Verdict": "sparring.contracts.verdicts",
    "cannot_tell": "sparring.contracts.verdicts",
    "failed": "sparring.contracts.verdicts",
    "passed": "sparring.contracts.verdicts",
    "scored": "sparring.contracts.verdicts",
    "Environment": "sparring.environments",
    "measure": "sparring.measures",
    "llm_judge": "sparring.measures.llm_judge",
    "contains": "sparring.measures.builtin",
    "exact": "sparring.measures.builtin",
    "json_schema": "sparring.measures.builtin",
    "length": "sparring.measures.builtin",
    "no_tool_failed": "sparring.measures.builtin",
    "numeric": "sparring.measures.builtin",
    "operator_tools": "sparring.surfaces.agents_tools",
    "regex": "sparring.measures.builtin",
    "tool_called": "sparring.measures.builtin",
    "Suite": "sparring.suites",
    "EvalResult": "sparring.api.evaluation",
    "evaluate": "sparring.api.evaluation",
    "prove": "sparring.api.evaluation",
    "tool": "sparring.player.worlds",
    "train": "sparring.api.training",
    "Trainer": "sparring.api.training",
    "TrainResult": "sparring.api.train_result",
}

__all__ = [
    "Case",
    "Environment",
    "EvalResult",
    "Rollout",
    "SandboxLimits",
    "Service",
    "SparringError",
    "Split",
    "Suite",
    "TrainResult",
    "Trainer",
    "Verdict",
    "Workspace",
    "__version__",
    "cannot_tell",
    "contains",
    "evaluate",
    "exact",
    "failed",
    "json_schema",
    "length",
    "llm_judge",
    "measure",
    "no_tool_failed",
    "numeric",
    "operator_tools",
    "passed",
    "prove",
    "regex",
    "scored",
    "tool",
    "tool_called",
    "train",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sparring' has no attribute {name!r}")
    if home.startswith("sparring.api"):  # imports torch
        from sparring.cpu import share_machine

        share_machine()
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return __all__
