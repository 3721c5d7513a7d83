"""The states of a run, and the one table of allowed transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sparring.contracts.errors import IllegalMove


class RunState(StrEnum):
    """The state of a run."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """Whether no processes work on the run any more."""
        return self in ENDED


NEXT: Mapping[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.STARTING, RunState.STOPPED, RunState.FAILED}),
    RunState.STARTING: frozenset(
        {RunState.RUNNING, RunState.STOPPING, RunState.COMPLETED, RunState.FAILED}
    ),
    RunState.RUNNING: frozenset(
        {RunState.STARTING, RunState.STOPPING, RunState.COMPLETED, RunState.FAILED}
    ),
    # It may finish or fail before the stop request reaches it.
    RunState.STOPPING: frozenset({RunState.STOPPED, RunState.COMPLETED, RunState.FAILED}),
    RunState.STOPPED: frozenset({RunState.QUEUED}),
    RunState.FAILED: frozenset({RunState.QUEUED}),
    RunState.COMPLETED: frozenset(),
}
ENDED = frozenset({RunState.STOPPED, RunState.COMPLETED, RunState.FAILED})
ACTIVE = frozenset(RunState) - ENDED
HELD = ACTIVE - {RunState.QUEUED}  # has processes, or is about to have them


def may_become(current: RunState, wanted: RunState) -> bool:
    """Whether the table allows this transition."""
    return wanted in NEXT[current]


def advance(current: RunState, wanted: RunState) -> RunState:
    """Return `wanted` if the table allows it after `current`; IllegalMove otherwise."""
    if not may_become(current, wanted):
        raise IllegalMove(f"a {current.value} run cannot become {wanted.value}")
    return wanted
