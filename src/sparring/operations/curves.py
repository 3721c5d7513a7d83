"""Operations that read the metrics of runs: curves, changes since the last call, trends."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from sparring.contracts.foreign import MIXED, ForeignText
from sparring.contracts.json import JsonObject, MetricsRow
from sparring.contracts.specs import Frozen
from sparring.operations.held_out import is_held_out
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.run_views import (
    RunQuery,
    message_for,
    message_of,
    visible_events,
    visible_progress,
)
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_history_rows, sampled
from sparring.run_folder.files import read_from
from sparring.runs.finding import find_run
from sparring.runs.lifecycle import RunState
from sparring.runs.status import doing_of, recent_rows, status_of, time_left

_TREND_POINTS = 40


class CurvesQuery(RunQuery):
    """The curves to read."""

    points: int = Field(default=1000, ge=10, le=20_000, description="maximum number of steps")


class Curves(Frozen):
    """The metrics of a run, as columns."""

    run: str
    steps: tuple[int, ...]
    columns: Annotated[dict[str, tuple[float | None, ...]], MIXED] = Field(
        description="one value per step; null if the step has none"
    )
    attempt: int = Field(default=0, description="the last attempt with metrics")
    cursor: int = Field(description="pass as `metrics` to run.changes for later rows")
    events: Annotated[tuple[JsonObject, ...], MIXED] = ()
    events_cursor: int = Field(description="pass as `events` to run.changes for later events")


class ChangesQuery(RunQuery):
    """The cursors of the previous answer."""

    metrics: int = Field(default=0, ge=0, lt=2**62)
    events: int = Field(default=0, ge=0, lt=2**62)


class Changes(Frozen):
    """The state of a run, and its metrics and events since the cursors."""

    run: str
    state: RunState
    has_ended: bool
    message: ForeignText = ""
    step: int | None = None
    steps: int | None = None
    doing: str = ""
    seconds_left: float | None = None
    minutes: float = 0.0
    progress: Annotated[JsonObject | None, MIXED] = None
    rollouts: int = Field(default=0, description="rollouts played, if the run reports them")
    rows: Annotated[tuple[MetricsRow, ...], MIXED] = Field(
        default=(), description="new rows of metrics, one per attempt and step"
    )
    new_events: Annotated[tuple[JsonObject, ...], MIXED] = ()
    metrics: int
    events: int


class TrendsQuery(Frozen):
    """The runs whose trends to read."""

    runs: tuple[str, ...] = Field(max_length=200)


class Trends(Frozen):
    """Recent rewards by run, at most 40 per run."""

    rewards: dict[str, tuple[float, ...]]


@operation("run.curves", role=Role.VIEWER, changes_state=False)
def run_curves(request: CurvesQuery, caller: Caller) -> Curves:
    """Read a run's metrics, thinned to a maximum number of steps, and its events."""
    folder = find_run(caller.runs, request.run)
    metrics = folder.metrics
    cursor = read_from(metrics, 0).cursor if metrics.is_file() else 0
    rows = [] if _is_hidden(folder, caller) else read_history_rows(folder)
    chosen = sampled(rows, request.points)
    names = sorted({name for row in chosen for name in row} - {"step", "attempt"})
    events = read_from(folder.events, 0)
    return Curves(
        run=folder.id,
        steps=tuple(int(row["step"]) for row in chosen),
        columns={name: tuple(_number(row.get(name)) for row in chosen) for name in names},
        attempt=max((int(row["attempt"]) for row in rows), default=0),
        cursor=cursor,
        events=visible_events(caller, folder, events.values),
        events_cursor=events.cursor,
    )


@operation("run.changes", role=Role.VIEWER, changes_state=False)
def run_changes(request: ChangesQuery, caller: Caller) -> Changes:
    """Read a run's state, and its metrics and events since the given cursors."""
    folder = find_run(caller.runs, request.run)
    status = status_of(folder)
    metrics = read_from(folder.metrics, request.metrics)
    events = read_from(folder.events, request.events)
    left = None if status.state.has_ended else time_left(status)
    return Changes(
        run=folder.id,
        state=status.state,
        has_ended=status.state.has_ended,
        message=message_of(status.history, caller, folder)
        or message_for(caller, folder, status.history.warning),
        step=status.step,
        steps=status.steps,
        doing=doing_of(folder, status),
        rollouts=int((status.progress or {}).get("rollouts") or 0),
        seconds_left=left.seconds if left else None,
        minutes=status.minutes,
        progress=visible_progress(folder, status, caller),
        rows=() if _is_hidden(folder, caller) else tuple(metrics.values),
        new_events=visible_events(caller, folder, events.values),
        metrics=metrics.cursor,
        events=events.cursor,
    )


@operation("run.trends", role=Role.VIEWER, changes_state=False)
def run_trends(request: TrendsQuery, caller: Caller) -> Trends:
    """Read the recent rewards of several runs."""
    found: dict[str, tuple[float, ...]] = {}
    for name in request.runs:
        folder = find_run(caller.runs, name)
        if _is_hidden(folder, caller):
            continue
        values = [
            float(row["reward"])
            for row in recent_rows(folder)
            if isinstance(row.get("reward"), int | float)
        ]
        if values:
            found[name] = tuple(round(each, 4) for each in _thinned(values))
    return Trends(rewards=found)


def _thinned(values: list[float]) -> list[float]:
    if len(values) <= _TREND_POINTS:
        return values
    last = len(values) - 1
    return [values[round(n * last / (_TREND_POINTS - 1))] for n in range(_TREND_POINTS)]


def _is_hidden(folder: RunFolder, caller: Caller) -> bool:
    return not caller.is_owner and is_held_out(folder)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
