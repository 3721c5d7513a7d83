"""Builds rollouts and tool calls, to test measures without a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, Message, Rollout, RolloutKey, ToolCall


def rollout(
    answer: str = "",
    *,
    expected: Any = None,
    input: str = "",
    fields: Mapping[str, Any] | None = None,
    tool_calls: Sequence[ToolCall] = (),
    world: Any = None,
) -> Rollout:
    """Return a rollout of one case that ended with `answer`, for a measure to judge."""
    case = Case("case", input, expected, fields=dict(fields or {}))
    return Rollout(
        key=RolloutKey(0, 0, case.id, 0),
        case=case,
        ending=Ending.ANSWERED,
        answer=answer,
        messages=(Message("user", input), Message("assistant", answer)),
        tool_calls=tuple(tool_calls),
        turns=1 + bool(tool_calls),
        world=world,
    )


def tool_call(tool: str, result: str = "", **arguments: Any) -> ToolCall:
    """Return a successful call of `tool` with these arguments and this result."""
    return ToolCall(f"call_{tool}", tool, json.dumps(arguments), result=result)
