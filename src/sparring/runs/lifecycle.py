"""The states of a run, and which may follow which. One table; nothing else decides."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sparring.contracts.errors import IllegalMove


class RunState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        return self in ENDED


NEXT: Mapping[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.STARTING, RunState.STOPPED, RunState.FAILED}),
    RunState.STARTING: frozenset(
        {RunState.RUNNING, RunState.STOPPING, RunState.COMPLETED, RunState.FAILED}
    ),
    RunState.RUNNING: frozenset(
        {RunState.STARTING, RunState.STOPPING, RunState.COMPLETED, RunState.FAILED}
    ),
    # It may have finished, or broken, before the wish to stop reached it.
    RunState.STOPPING: frozenset({RunState.STOPPED, RunState.COMPLETED, RunState.FAILED}),
    RunState.STOPPED: frozenset({RunState.QUEUED}),
    RunState.FAILED: frozenset({RunState.QUEUED}),
    RunState.COMPLETED: frozenset(),
}
ENDED = frozenset({RunState.STOPPED, RunState.COMPLETED, RunState.FAILED})
ACTIVE = frozenset(RunState) - ENDED
HELD = ACTIVE - {RunState.QUEUED}  # has processes, or is about to have them


def may_become(current: RunState, wanted: RunState) -> bool:
    return wanted in NEXT[current]


def advance(current: RunState, wanted: RunState) -> RunState:
    """Return `wanted` if a run may move there from `current`, else raise."""
    if not may_become(current, wanted):
        raise IllegalMove(f"a {current.value} run cannot become {wanted.value}")
    return wanted
