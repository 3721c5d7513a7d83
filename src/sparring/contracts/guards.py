"""Guards: conditions that warn about, or stop, a training run that cannot improve.

A guard checks the metrics of each step and acts once its condition has held for `steps` steps in
a row.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from sparring.contracts.specs import Frozen

Action = Literal["stop", "warn", "off"]


class Guard(Frozen):
    """One condition: its limit, how long it must hold, and the action taken."""

    limit: float = 0.0
    steps: int = Field(default=1, ge=1)
    action: Action = "stop"


class Guards(Frozen):
    """All guards. The string "stop", "warn" or "off" in place of a guard sets its action."""

    no_tool_call: Guard = Field(
        default=Guard(limit=0.0, steps=10),
        description="acts if the share of rollouts that call a tool is at most `limit`",
    )
    dead_groups: Guard = Field(
        default=Guard(limit=0.0, steps=10),
        description="acts if the share of groups with a gradient is at most `limit`",
    )
    entropy: Guard = Field(
        default=Guard(limit=0.001, steps=10),
        description="acts if the mean entropy of sampled tokens is below `limit`",
    )
    truncated: Guard = Field(
        default=Guard(limit=0.95, steps=10),
        description="acts if the token budget cuts off a larger share of rollouts than `limit`",
    )
    not_finite: Guard = Field(
        default=Guard(),
        description="acts if the loss or a gradient is not finite; `warn` skips the step",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _keep_other_fields(cls, value: Any, info: Any) -> Any:
        default = cls.model_fields[info.field_name].default.model_dump()
        if isinstance(value, str):
            return {**default, "action": value}
        return {**default, **value} if isinstance(value, dict) else value

    def only_not_finite(self) -> Guards:
        """Return guards of which all but `not_finite` are off, for steps that are discarded."""
        off = dict.fromkeys(type(self).model_fields, "off")
        return Guards.model_validate({**off, "not_finite": self.not_finite})
