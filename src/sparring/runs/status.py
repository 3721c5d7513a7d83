"""The current status of a run: its history, its progress and its processes."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparring.contracts.errors import SparringError
from sparring.contracts.json import MetricsRow
from sparring.contracts.progress import seconds_left
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json_or_empty, read_tail
from sparring.runs.history import History, read_history
from sparring.runs.launchers import SupervisorPresence, find_supervisor
from sparring.runs.lifecycle import HELD, RunState
from sparring.runs.queue import ensure_supervised

_TAIL = 1 << 18


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run, read from its folder. `progress` is the content of `heartbeat.json`,
    `supervisor` the supervisor's heartbeat. With `is_elsewhere`, the supervisor's processes are not
    visible from this host."""

    history: History
    progress: Mapping[str, Any] | None = None
    supervisor: Mapping[str, Any] = field(default_factory=dict)
    is_elsewhere: bool = False

    @property
    def state(self) -> RunState:
        """The run's state."""
        return self.history.state

    @property
    def step(self) -> int | None:
        """The step, or the number of rollouts so far in a run without steps."""
        return self._figure("step", "rollouts")

    @property
    def steps(self) -> int | None:
        """The number of steps, or of rollouts in a run without steps."""
        return self._figure("steps", "total")

    def _figure(self, name: str, otherwise: str) -> int | None:
        beat = self.progress or {}
        figure: int | None = beat.get(name, beat.get(otherwise))
        return figure

    @property
    def metrics(self) -> MetricsRow:
        """The metrics of the last step."""
        return (self.progress or {}).get("metrics") or {}

    @property
    def minutes(self) -> float:
        """Minutes that the run has taken so far, over all attempts."""
        return round(self.seconds / 60, 2)

    @property
    def seconds(self) -> float:
        """Seconds that the run has taken so far, over all attempts."""
        if self.supervisor:
            seconds = self.supervisor.get("seconds")
            return float(seconds) if isinstance(seconds, int | float) else 0.0
        history = self.history
        started, ended = history.started, history.ended or history.updated
        if not history.is_supervised and history.pid:  # it was started from Python
            started = history.created
            beat = (self.progress or {}).get("time")
            ended = max(ended, beat) if isinstance(beat, int | float) else ended
        return max(0.0, ended - started) if started else 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated seconds until a run ends, and the basis of the estimate as text."""

    seconds: float
    basis: str


def supervised_status(folder: RunFolder) -> RunStatus:
    """Return the status of a run, after `ensure_supervised`: it replaces a dead supervisor, starts
    queued runs, and fails an unsupervised run whose process is gone. Its errors are suppressed."""
    history = read_history(folder).history
    if not history.state.has_ended:
        with contextlib.suppress(SparringError, OSError):
            ensure_supervised(folder, history)
    return status_of(folder)


def status_of(folder: RunFolder) -> RunStatus:
    """Return the status of a run; changes nothing."""
    status = with_figures(folder, read_history(folder).history)
    if status.history.is_supervised and status.state in HELD:
        is_elsewhere = find_supervisor(folder) is SupervisorPresence.ELSEWHERE
        return replace(status, is_elsewhere=is_elsewhere)
    return status


def with_figures(folder: RunFolder, history: History) -> RunStatus:
    """Return the status for a known history, with the heartbeats read from the folder."""
    beat = read_json_or_empty(folder.heartbeat) or None
    return RunStatus(history, beat, read_json_or_empty(folder.supervisor))


def doing_of(folder: RunFolder, status: RunStatus) -> str:
    """Return the current activity of rank 0; empty once the run has ended."""
    if status.state.has_ended:
        return ""
    return str(read_json_or_empty(folder.rank_heartbeat(0)).get("doing", ""))


def recent_rows(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the rows in the last 256 KiB of the metrics file."""
    lines = read_tail(folder.metrics, _TAIL).splitlines()  # the first may be half a line
    rows = []
    for line in lines:
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


def time_left(status: RunStatus) -> Estimate | None:
    """Return the time left by the run's heartbeat; None if the run is not running or does not know
    it."""
    beat = status.progress or {}
    seconds = seconds_left(beat, time.time())
    if status.state is not RunState.RUNNING or seconds is None:
        return None
    done, total = int(status.step or 0), int(status.steps or 0)
    steps = "steps" if "steps" in beat else "rollouts"
    return Estimate(seconds, f"{total - done} {steps} left, at the pace so far")
