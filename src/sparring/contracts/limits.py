"""Limits on one rollout, and on all rollouts together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on rollouts and tools. Deadlines are in seconds.

    `completion_tokens` limits everything after the first prompt, tool results included. Time spent
    waiting for a lockstep batch does not count against a deadline, so that results do not depend
    on the speed of the machine.
    """

    in_flight: int = 64
    tool_rounds: int = 5
    user_messages: int = 8
    completion_tokens: int = 1024
    rollout_seconds: float = 600.0
    result_tokens: int | None = None
    tool_seconds: float = 30.0
    tool_concurrency: int = 256
    tool_concurrency_by_name: Mapping[str, int] = field(default_factory=dict)
    tool_threads: int = 256
    hung_threads: int = 64

    @property
    def turns(self) -> int:
        """Maximum number of model calls between two user messages."""
        return self.tool_rounds + 1
