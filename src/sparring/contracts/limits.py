"""What one rollout, and all rollouts together, may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of playing. Deadlines are in seconds.

    `completion_tokens` bounds everything behind the first prompt, tool results included.
    Waiting for a wave of in-process generation is not counted against a deadline: on a
    slow machine that would make the result depend on its speed.
    """

    in_flight: int = 64
    tool_rounds: int = 5
    completion_tokens: int = 1024
    rollout_seconds: float = 600.0
    tool_seconds: float = 30.0
    tool_concurrency: int = 256
    tool_concurrency_by_name: Mapping[str, int] = field(default_factory=dict)
    tool_threads: int = 256
    hung_threads: int = 64

    @property
    def turns(self) -> int:
        return self.tool_rounds + 1
