"""Remedies for errors, for callers that have tools and no shell."""

from __future__ import annotations

import re
from functools import cache

from sparring.contracts.errors import SparringError
from sparring.contracts.specs import COMMAND
from sparring.operations.operation import all_operations

_REMEDIES = {
    "LockedField": "Leave this field out and plan without it; only the owner can unlock it.",
    "OverBudget": "Plan something smaller, or wait; show_limits shows what is left. Only the owner "
    "can raise a limit.",
    "SettingError": "Correct the field; show_config lists all of them with their values and locks.",
    "NotPermitted": "Only the owner can do this. Do without it, or tell the owner what you need.",
    "RunNotFound": "list_runs shows the existing runs.",
    "EnvironmentNotFound": "list_environments shows the existing environments.",
    "EnvironmentBroken": "The environment's own code fails; its owner has to fix it.",
    "PlanRefused": "Make a new plan with plan_run, and start it.",
    "NotFinished": "Wait with wait_for_run, then call this tool again.",
    "IllegalMove": "show_run shows the run's state.",
    "RunChanged": "Plan a new run: the old one cannot resume with changed code.",
    "ActivityLogBusy": "Try again in a moment; if it persists, tell the owner.",
    "InvalidInput": "Correct the arguments to match the tool's schema.",
}
_COMMAND = re.compile(r"`?sparring ([a-z]+)( [a-z]+)?((?: -{0,2}[\w…<>.\-]+)*)`?")


def remedy_for(error: SparringError) -> str:
    """Return the remedy for the error's class, or for its nearest base class that has one."""
    for kind in type(error).__mro__:
        if remedy := _REMEDIES.get(kind.__name__):
            return remedy
    return "Tell the owner."


def with_tool_names(message: str) -> str:
    """Replace commands with tool names: `sparring run wait ID` becomes `wait_for_run`."""
    return _COMMAND.sub(_tool_for, message).replace(f"{COMMAND}: ", "")


def _tool_for(match: re.Match[str]) -> str:
    first, second = match.group(1), (match.group(2) or "").strip()
    tools = _tools_by_command()
    return tools.get(f"{first} {second}") or tools.get(first) or match.group(0)


@cache
def _tools_by_command() -> dict[str, str]:
    forms = [operation.forms for operation in all_operations().values()]
    return {each.cli: each.tool for each in forms if each.cli and each.tool}
