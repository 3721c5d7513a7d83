"""When a training that cannot get anywhere is to be stopped.

Each guard looks at the figures of a step, and acts once its condition has held for `steps`
steps in a row.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from sparring.contracts.specs import Frozen

Action = Literal["stop", "warn", "off"]


class Guard(Frozen):
    """One condition: its limit, how long it must hold, and what happens then."""

    limit: float = 0.0
    steps: int = Field(default=1, ge=1)
    action: Action = "stop"


class Guards(Frozen):
    """All of them. A bare "stop", "warn" or "off" in place of a guard sets its action."""

    no_tool_call: Guard = Field(
        default=Guard(limit=0.0, steps=10),
        description="share of rollouts that call a tool, at most `limit`",
    )
    dead_groups: Guard = Field(
        default=Guard(limit=0.0, steps=10),
        description="share of groups that teach anything, at most `limit`",
    )
    entropy: Guard = Field(
        default=Guard(limit=0.001, steps=10),
        description="mean entropy of sampled tokens, below `limit`",
    )
    truncated: Guard = Field(
        default=Guard(limit=0.95, steps=10),
        description="share of rollouts cut off by the token budget, above `limit`",
    )
    not_finite: Guard = Field(
        default=Guard(), description="a loss or gradient that is no number; warn: skip the step"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _what_is_not_said_stays(cls, value: Any, info: Any) -> Any:
        default = cls.model_fields[info.field_name].default.model_dump()
        if isinstance(value, str):
            return {**default, "action": value}
        return {**default, **value} if isinstance(value, dict) else value
