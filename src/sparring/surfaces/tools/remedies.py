"""What to do about a refusal, for a caller that has tools and no shell."""

from __future__ import annotations

import re
from functools import cache

from sparring.contracts.errors import SparringError
from sparring.operations.every import every_operation
from sparring.operations.settling import COMMAND

_REMEDIES = {
    "LockedField": "Leave this field out and plan without it; only the owner can unlock it.",
    "OverBudget": "Plan something smaller, or wait; show_limits says what is left. Only the owner "
    "can raise a limit.",
    "SettingError": "Correct the field; show_config lists all of them with their values and locks.",
    "NotPermitted": "This is the owner's to do. Go on without it, or tell the owner what you need.",
    "RunNotFound": "list_runs shows the runs that there are.",
    "EnvironmentNotFound": "list_environments shows the environments that there are.",
    "EnvironmentBroken": "The environment's own code fails; its owner has to mend it.",
    "PlanRefused": "Make a new plan with plan_run, and start that.",
    "NotFinished": "Wait with wait_for_run, then ask again.",
    "IllegalMove": "show_run says what state the run is in.",
    "RunChanged": "Plan a new run: the old one cannot go on with other code.",
    "TrailBusy": "Try again in a moment; if it stays, tell the owner.",
    "InvalidInput": "Correct the arguments by the tool's schema.",
}
_COMMAND = re.compile(r"`?sparring ([a-z]+)( [a-z]+)?((?: -{0,2}[\w…<>.\-]+)*)`?")


def remedy_for(error: SparringError) -> str:
    """By the nearest kind that has one."""
    for kind in type(error).__mro__:
        if remedy := _REMEDIES.get(kind.__name__):
            return remedy
    return "Tell the owner."


def in_words_of_tools(message: str) -> str:
    """`sparring run wait ID`, where a message says so to a person, is `wait_for_run`."""
    return _COMMAND.sub(_tool_for, message).replace(f"{COMMAND}: ", "")


def _tool_for(found: re.Match[str]) -> str:
    first, second = found.group(1), (found.group(2) or "").strip()
    tools = _tools_by_command()
    return tools.get(f"{first} {second}") or tools.get(first) or found.group(0)


@cache
def _tools_by_command() -> dict[str, str]:
    forms = [operation.forms for operation in every_operation().values()]
    return {each.cli: each.tool for each in forms if each.cli and each.tool}
