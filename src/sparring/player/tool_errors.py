"""Error texts that the model reads for failed calls. Play and the shipped agent use the same
texts."""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import jsonschema
from agents import ModelBehaviorError
from agents.run_config import ToolErrorFormatter, ToolErrorFormatterArgs

from sparring.contracts.rollouts import CallFailure, RequestedCall

_MAX_CALLS = 4096


@dataclass(frozen=True, slots=True)
class _Call:
    arguments: str
    offered: Mapping[str, Mapping[str, Any]]


class ToolErrors:
    """Formats failed calls for the model and reports each failure to `note`."""

    def __init__(self, note: Callable[[str, CallFailure], None] = lambda _id, _failure: None):
        self._note = note
        self._calls: OrderedDict[str, _Call] = OrderedDict()

    def remember(
        self, calls: Sequence[RequestedCall], offered: Sequence[Mapping[str, Any]]
    ) -> None:
        """Store the calls of one turn with the schemas of the tools that the turn offered. Only the
        last 4,096 calls are kept."""
        if not calls:
            return
        tools = {tool["function"]["name"]: tool["function"] for tool in offered}
        for call in calls:
            self._calls[call.id] = _Call(call.arguments, tools)
        while len(self._calls) > _MAX_CALLS:
            self._calls.popitem(last=False)

    def formatter(self, own: ToolErrorFormatter | None) -> ToolErrorFormatter:
        """Return an error formatter for a run config. Text from `own`, the formatter that the run
        config already has, takes precedence."""

        async def explain(failure: ToolErrorFormatterArgs[Any]) -> str | None:
            default = self._explain(failure)
            text = own(failure) if own is not None else None
            if inspect.isawaitable(text):
                text = await text
            return default if text is None else text

        return explain

    def _explain(self, failure: ToolErrorFormatterArgs[Any]) -> str | None:
        call = self._calls.get(failure.call_id, _Call("{}", {}))
        if failure.kind == "tool_not_found":
            self._note(failure.call_id, CallFailure.UNKNOWN_TOOL)
            listed = ", ".join(call.offered) or "none"
            return f"There is no tool {failure.tool_name!r}. The tools are: {listed}."
        if failure.kind != "tool_exception" or failure.error is None:
            return None
        self._note(failure.call_id, CallFailure.RAISED)
        reason = f"{type(failure.error).__name__}: {' '.join(str(failure.error).split())}"
        if isinstance(failure.error, ModelBehaviorError):  # the SDK rejected the arguments
            schema = call.offered.get(failure.tool_name, {}).get("parameters", {})
            reason = argument_problems(call.arguments, schema) or reason
        return f"{failure.tool_name} failed: {reason}"


_MAX_PROBLEMS, _MAX_LENGTH = 3, 120


def argument_problems(arguments: str, schema: Mapping[str, Any]) -> str:
    """Return the first three schema violations, separated by semicolons; empty if there are none.

    `arguments` must be valid JSON.
    """
    problems = jsonschema.Draft202012Validator(schema).iter_errors(json.loads(arguments))
    return "; ".join(
        f"{problem.json_path.removeprefix('$.').removeprefix('$') or 'arguments'}: "
        f"{problem.message[:_MAX_LENGTH]}"
        for problem in islice(problems, _MAX_PROBLEMS)
    )
