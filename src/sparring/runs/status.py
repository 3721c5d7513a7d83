"""How a run is right now: its history, its figures, its processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparring.contracts.errors import SparringError
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_tail, read_told
from sparring.runs.history import History, read_history
from sparring.runs.launching import Watched, is_watched
from sparring.runs.lifecycle import HELD, RunState
from sparring.runs.queue import see_to

_TAIL = 1 << 18
_RECENT_STEPS = 10


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What the folder tells of a run right now."""

    history: History
    progress: Mapping[str, Any] | None = None
    supervisor: Mapping[str, Any] = field(default_factory=dict)
    is_elsewhere: bool = False

    @property
    def state(self) -> RunState:
        return self.history.state

    @property
    def seconds(self) -> float:
        """How long it has run, all attempts together."""
        if self.supervisor:
            told = self.supervisor.get("seconds")
            return float(told) if isinstance(told, int | float) else 0.0
        history = self.history
        started, ended = history.started, history.ended or history.updated
        if not history.is_supervised and history.pid:  # it was started from Python
            started = history.created
            beat = (self.progress or {}).get("time")
            ended = max(ended, beat) if isinstance(beat, int | float) else ended
        return max(0.0, ended - started) if started else 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a run will go on, and what makes us think so."""

    seconds: float
    basis: str


def attended_status(folder: RunFolder) -> RunStatus:
    """The status of a run, which is seen to first: given a supervisor where it lacks one. That
    this does not work must not keep anybody from looking."""
    history = read_history(folder).history
    if not history.state.has_ended:
        with contextlib.suppress(SparringError, OSError):
            see_to(folder, history)
    return status_of(folder)


def status_of(folder: RunFolder) -> RunStatus:
    found = with_figures(folder, read_history(folder).history)
    if found.history.is_supervised and found.state in HELD:
        is_elsewhere = is_watched(folder) is Watched.ELSEWHERE
        return replace(found, is_elsewhere=is_elsewhere)
    return found


def with_figures(folder: RunFolder, history: History) -> RunStatus:
    """A history that is known already, with what the folder tells beside it."""
    beat = read_told(folder.heartbeat) or None
    return RunStatus(history, beat, read_told(folder.supervisor))


def recent_rows(folder: RunFolder) -> list[dict[str, Any]]:
    """The last rows of the metrics, without reading all of them."""
    lines = read_tail(folder.metrics, _TAIL).splitlines()  # the first may be half a line
    rows = []
    for line in lines:
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


def time_left(status: RunStatus, rows: list[dict[str, Any]]) -> Estimate | None:
    """From the steps just done, or the rollouts played so far; None where there are none yet."""
    beat = status.progress or {}
    if status.state is not RunState.RUNNING or not beat:
        return None
    if "steps" in beat:
        took = [float(row["seconds"]) for row in rows if "loss" in row and "seconds" in row]
        recent = took[-_RECENT_STEPS:]
        if not recent:
            return None
        left = int(beat["steps"]) - int(beat["step"])
        mean = sum(recent) / len(recent)
        basis = (
            f"{left} steps left, at the mean of the last {len(recent)}: {mean:.1f} s "
            f"({min(recent):.1f} to {max(recent):.1f}); validation and checkpoints not counted"
        )
        return Estimate(round(mean * left, 1), basis)
    done, total = int(beat.get("rollouts", 0)), int(beat.get("total", 0))
    if not done or done >= total or beat.get("doing", "playing") != "playing":
        return None
    each = status.seconds / done
    basis = f"{total - done} rollouts left, at {each:.2f} s each so far, loading included"
    return Estimate(round(each * (total - done), 1), basis)
