"""The states of a run, and the table of allowed transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sparring.contracts.errors import IllegalMove


class RunState(StrEnum):
    """The state of a run; `NEXT` lists the states that may follow."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """Whether the run is stopped, completed or failed."""
        return self in ENDED


NEXT: Mapping[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.STARTING, RunState.STOPPED, RunState.FAILED}),
    RunState.STARTING: frozenset(
        {RunState.RUNNING, RunState.STOPPING, RunState.COMPLETED, RunState.FAILED}
    ),
    RunState.RUNNING: frozenset(
        {RunState.STARTING, RunState.STOPPING, RunState.COMPLETED, RunState.FAILED}
    ),
    # A run may complete or fail before the stop request reaches it.
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
    """Return `wanted` if it may follow `current`; raises IllegalMove otherwise."""
    if not may_become(current, wanted):
        raise IllegalMove(f"a {current.value} run cannot become {wanted.value}")
    return wanted
