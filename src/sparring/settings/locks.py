"""Locks: values that somebody fixed, whom they bind, and those that bind by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import LockedField

UNSET: Any = object()

# What an AI operator may not change unless the project says so: which weights and servers are
# used, how long everything is and takes, and where it goes.
DEFAULT_LOCKS = (
    "model",
    "family",
    "policy",
    "device",
    "dtype",
    "vllm",
    "quantization",
    "max_completion_length",
    "in_flight",
    "tool_seconds",
    "rollout_seconds",
    "measure_seconds",
    "processes",
    "nodes",
    "rendezvous",
    "num_train_epochs",
    "max_steps",
    "validation_cases",
    "checkpoint_steps",
    "checkpoints_kept",
    "learning_rate",
    "lora.r",
    "engine",
    "report_to",
    "project",
    "entity",
    "unsandboxed",
    "warm_start",
)


@dataclass(frozen=True, slots=True)
class Lock:
    """A field that stays as it is. Without a value of its own, it holds what the layers below
    the command say."""

    field: str
    source: str
    value: Any = UNSET
    author: str = ""
    reason: str = ""
    binds_owner: bool = True

    def refusal(self, asked_by: str, field: str, locked: object, wanted: object) -> LockedField:
        by = f"{self.author} in {self.source}" if self.author else self.source
        why = f" ({self.reason})" if self.reason else ""
        return LockedField(
            f"{asked_by}: {field} is locked to {locked!r} by {by}{why}; {wanted!r} was asked for. "
            f"Drop it, or unlock it in {self.source}."
        )


def default_locks(free: tuple[str, ...] = ()) -> tuple[Lock, ...]:
    """Those that bind operators, but for what the project leaves to them."""
    return tuple(
        Lock(field, "the locks that bind operators by default", binds_owner=False)
        for field in DEFAULT_LOCKS
        if field not in free
    )
