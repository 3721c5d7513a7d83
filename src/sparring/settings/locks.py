"""Locks: which settings callers may not change.

The project file locks fields for everybody, and default locks bind operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import LockedConfig, LockedField

UNSET: Any = object()
# Fields that an AI operator may not change unless the project's `may_set` lists them. They
# determine weights, servers, lengths, deadlines, cost and where metrics are sent.
DEFAULT_LOCKS = (
    "model",
    "family",
    "thinking",
    "history_thinking",
    "device",
    "dtype",
    "sampling",
    "players",
    "max_staleness",
    "quantization",
    "max_completion_length",
    "max_concurrency",
    "kv_cache_memory",
    "tool_timeout",
    "rollout_timeout",
    "measure_timeout",
    "processes",
    "nodes",
    "rendezvous",
    "launcher",
    "slurm",
    "restarts",
    "hang_timeout",
    "start_timeout",
    "stop_timeout",
    "num_train_epochs",
    "max_steps",
    "validation_cases",
    "save_steps",
    "save_total_limit",
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
    """A lock on a field. A lock without a value fixes the value that the layers below the command
    resolve to. `binds_owner` is false for locks that bind only operators; `way_out` is the remedy
    in the error."""

    field: str
    source: str
    value: Any = UNSET
    author: str = ""
    reason: str = ""
    binds_owner: bool = True
    way_out: str = ""

    def refusal(self, requested_by: str, field: str, locked: object, wanted: object) -> LockedField:
        """Return the error for an attempt to change a locked field."""
        holder = f"{self.author} in {self.source}" if self.author else self.source
        reason = f" ({self.reason})" if self.reason else ""
        error_class = LockedConfig if field.partition(".")[0] == "config" else LockedField
        return error_class(
            f"{requested_by}: {field} is locked to {locked!r} by {holder}{reason}; you asked for "
            f"{wanted!r}. Drop it, or {self.way_out or f'unlock it in {self.source}'}."
        )


def default_locks(
    free: Sequence[str] = (), sensitive_config: Sequence[str] = ()
) -> tuple[Lock, ...]:
    """Return the locks that bind operators, except on the fields that `free` covers.
    `sensitive_config` lists further fields to lock, from an environment's config."""
    return tuple(
        Lock(
            field,
            "the locks that bind operators by default",
            binds_owner=False,
            way_out=f"have the owner add {field!r} to [operators] may_set",
        )
        for field in (*DEFAULT_LOCKS, *sensitive_config)
        if not any(covers(name, field) for name in free)
    )


def covers(name: str, other: str) -> bool:
    """Return whether `other` is `name` or lies inside the table `name`."""
    return other.startswith(name) and other[len(name) : len(name) + 1] in ("", ".")


def touches(name: str, other: str) -> bool:
    """Return whether one name covers the other, so that setting one changes both."""
    return covers(name, other) or covers(other, name)
