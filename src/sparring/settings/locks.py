"""Locks: values that somebody fixed, whom they bind, and those that bind by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import LockedConfig, LockedField
from sparring.settings.names import covers

UNSET: Any = object()

# What an AI operator may not change unless the project says so: which weights and servers are
# used, how long everything is and takes, and where it goes.
DEFAULT_LOCKS = (
    "model",
    "family",
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
    "launcher",
    "slurm",
    "restarts",
    "hung_seconds",
    "start_seconds",
    "stop_seconds",
    "num_train_epochs",
    "max_steps",
    "validation_cases",
    "checkpoint_steps",
    "checkpoints_kept",
    "learning_rate",
    "lora",
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
    way_out: str = ""

    def refusal(self, asked_by: str, field: str, locked: object, wanted: object) -> LockedField:
        by = f"{self.author} in {self.source}" if self.author else self.source
        why = f" ({self.reason})" if self.reason else ""
        kind = LockedConfig if field.startswith("config.") else LockedField
        return kind(
            f"{asked_by}: {field} is locked to {locked!r} by {by}{why}; {wanted!r} was asked for. "
            f"Drop it, or {self.way_out or f'unlock it in {self.source}'}."
        )


def default_locks(free: Sequence[str] = (), besides: Sequence[str] = ()) -> tuple[Lock, ...]:
    """Those that bind operators, but for what the project leaves to them; `besides` are fields of
    an environment's config that are as delicate."""
    return tuple(
        Lock(
            field,
            "the locks that bind operators by default",
            binds_owner=False,
            way_out=f"have the owner add {field!r} to [operators] may_set",
        )
        for field in (*DEFAULT_LOCKS, *besides)
        if not any(covers(name, field) for name in free)
    )
