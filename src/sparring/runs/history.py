"""Folds a run's events into its state; a fold can be continued after any line.

The state depends on the order of the lines, not on their times. The fold ignores transitions that
the lifecycle table does not allow, and states, attempts and restarts of a supervisor that has been
replaced. A late writer is therefore harmless on any file system.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from sparring.contracts.json import Event, JsonObject
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_from
from sparring.runs.lifecycle import RunState, may_become

_Changes = dict[str, Any]  # fields of a History, by name


@dataclass(frozen=True, slots=True)
class RankResult:
    """What a rank reported at its end; `name` is completed, stopped or failed."""

    name: str
    message: str = ""
    error: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class AttemptState:
    """The current or last attempt. `checkpoint` is the newest one when it began."""

    number: int = 0
    has_ended: bool = True
    checkpoint: int = 0
    result: RankResult | None = None

    @property
    def has_completed(self) -> bool:
        """Whether a rank reported that the run is complete."""
        return self.result is not None and self.result.name == "completed"

    @property
    def failure(self) -> RankResult | None:
        """The failure that a rank reported."""
        return self.result if self.result is not None and self.result.name == "failed" else None


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Who requested a stop, and why."""

    author: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The state of a run after a sequence of events.

    `life` counts how often the run was queued, or started from Python. `stop` is the request to
    stop since then. `model` is the model that the run opened; its spec names none if the agent
    does.
    """

    state: RunState = RunState.QUEUED
    is_supervised: bool = False
    epoch: int = 0
    attempt: AttemptState = AttemptState()
    life: int = 0
    author: str = ""
    stop: StopRequest | None = None
    cause: str = ""
    message: str = ""
    error: str = ""
    exit_code: int = 0
    created: float = 0.0
    queued: float = 0.0
    queued_epoch: int = 0
    started: float = 0.0
    ended: float = 0.0
    updated: float = 0.0
    runs_at_once: int | None = None
    hours: float | None = None
    accept_changes: bool = False
    restarts: int = 0
    restart_message: str = ""
    takeovers: int = 0
    checkpoint: int = 0
    pid: int = 0
    host: str = ""
    links: tuple[tuple[str, str], ...] = ()
    warning: str = ""
    model: str = ""

    @property
    def is_stop_requested(self) -> bool:
        """Whether a stop was requested since the run was last queued."""
        return self.stop is not None

    @property
    def has_saved(self) -> bool:
        """Whether the current attempt has saved a checkpoint."""
        return self.checkpoint > self.attempt.checkpoint

    def after(self, event: Event) -> History:
        """Return the history after one more event. Unknown and malformed events change nothing."""
        if (fold := _FOLDS.get(str(event.get("event")))) is None:
            return self
        try:
            time = float(event.get("time") or self.updated)
            changed = fold(self, event)
        except (TypeError, ValueError, OverflowError):  # malformed: the file was edited
            return self
        if changed is None:
            return self
        dated: _Changes = {"updated": time, "created": self.created or time}
        return replace(self, **(dated | changed))

    def to_dict(self) -> JsonObject:
        """Return the fields as JSON-compatible values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: JsonObject) -> History:
        """Restore a history from `to_dict`."""
        attempt, stop = values["attempt"], values["stop"]
        result = attempt["result"] and RankResult(**attempt["result"])
        restored = {
            "state": RunState(values["state"]),
            "attempt": AttemptState(**{**attempt, "result": result}),
            "stop": stop and StopRequest(**stop),
            "links": tuple((name, link) for name, link in values["links"]),
        }
        return cls(**{**values, **restored})


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """A history, and the offset in the events file after its last event."""

    history: History = History()
    cursor: int = 0


def read_history(folder: RunFolder, known: HistoryRead | None = None) -> HistoryRead:
    """Return the history of a run. With `known`, only events after its cursor are read."""
    known = known or HistoryRead()
    lines = read_from(folder.events, known.cursor)
    return HistoryRead(fold_events(lines.values, known.history), lines.cursor)


def fold_events(events: Iterable[Event], history: History | None = None) -> History:
    """Return the history after `events`, starting from `history` or an empty one."""
    history = history or History()
    for event in events:
        history = history.after(event)
    return history


# ---------------------------------------------------------------------- one function per event


def _state(history: History, event: Event) -> _Changes | None:
    try:
        state = RunState(str(event.get("state")))
    except ValueError:  # written by a newer version
        return None
    epoch = int(event.get("epoch", history.epoch))
    if epoch < history.epoch:
        return None
    if state is RunState.QUEUED:
        return _queued(history, event)
    if state is history.state:  # repeated by a new supervisor
        return {"epoch": epoch}
    if not may_become(history.state, state):
        return None
    changed: _Changes = {"state": state, "epoch": epoch, "is_supervised": True}
    time = float(event.get("time") or history.updated)
    if state is RunState.RUNNING and not history.started:
        changed["started"] = time
    if state.has_ended:
        changed |= {"ended": time, "attempt": replace(history.attempt, has_ended=True)}
    for name in ("cause", "message", "error", "exit_code"):
        if name in event:
            changed[name] = event[name]
    return changed


def _queued(history: History, event: Event) -> _Changes | None:
    """Queue a new run, or requeue a stopped or failed one."""
    is_new = history.life == 0 and history.state is RunState.QUEUED
    if not is_new and not may_become(history.state, RunState.QUEUED):
        return None
    return {
        "state": RunState.QUEUED,
        "is_supervised": True,
        "life": history.life + 1,
        "author": str(event.get("author", "")) if is_new else history.author,
        "stop": None,
        "cause": "",
        "message": "",
        "error": "",
        "exit_code": 0,
        "ended": 0.0,
        "restarts": 0,
        "takeovers": 0,
        "attempt": replace(history.attempt, result=None),
        "queued": float(event.get("time") or history.updated),
        "queued_epoch": int(event.get("after", history.epoch)),
        "runs_at_once": _count(event.get("runs_at_once")),
        "hours": event["hours"] and float(event["hours"]) if "hours" in event else history.hours,
        "restart_message": "",
        "accept_changes": bool(event.get("accept_changes")),
    }


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _claimed(history: History, event: Event) -> _Changes | None:
    epoch = int(event.get("epoch", 0))
    claimed = {"epoch": epoch, "takeovers": history.takeovers + 1}
    return claimed if epoch > history.epoch else None


def _attempt(history: History, event: Event) -> _Changes | None:
    """Begin an attempt; from here on, starts and results of earlier attempts are ignored."""
    if int(event.get("epoch", 0)) < history.epoch:
        return None
    number = int(event.get("attempt", 0))
    begun = AttemptState(number, has_ended=False, checkpoint=history.checkpoint)
    return {"attempt": begun} if number > history.attempt.number else None


def _restart(history: History, event: Event) -> _Changes | None:
    if int(event.get("epoch", 0)) < history.epoch:
        return None
    return {
        "restarts": history.restarts + 1,
        "restart_message": f"{event.get('cause', '')}: {event.get('message', '')}",
        "attempt": replace(
            history.attempt,
            has_ended=int(event.get("attempt", 0)) >= history.attempt.number,
            result=None,
        ),
    }


def _stop_requested(history: History, event: Event) -> _Changes | None:
    if history.state.has_ended:
        return None
    author, reason = str(event.get("author") or "somebody"), str(event.get("reason") or "")
    return {"stop": StopRequest(author, reason)}


def _started(history: History, event: Event) -> _Changes | None:
    process = {"pid": int(event.get("pid", 0)), "host": str(event.get("host", ""))}
    if "attempt" in event:
        return process if event["attempt"] == history.attempt.number else None
    # An event without an attempt is from a run without a supervisor, in a process that called the
    # Python API.
    now = float(event.get("time") or history.updated)
    started = history.started or now
    return {
        **process,
        "state": RunState.RUNNING,
        "is_supervised": False,
        "started": started,
        "ended": 0.0,
        "queued": history.queued or now,
        "stop": None,
        "error": "",
        "exit_code": 0,
        "cause": "",
        "message": "",
        "attempt": replace(history.attempt, result=None),
        "life": history.life + 1,
    }


def _result(history: History, event: Event) -> _Changes | None:
    """Record the result that a rank reports. The first failure is kept, because the failures of
    other ranks usually follow from it."""
    name = str(event["event"])
    result = RankResult(
        name,
        str(event.get("message", "")),
        str(event.get("kind", "")),
        int(event.get("exit_code", 0)),
    )
    changed: _Changes = {"attempt": replace(history.attempt, result=result)}
    if "attempt" in event:
        is_late = event["attempt"] != history.attempt.number or history.attempt.failure is not None
        return None if is_late else changed
    if history.is_supervised or history.state.has_ended:
        return None
    changed["state"] = RunState(name)
    changed["ended"] = float(event.get("time") or history.updated)
    if name == "failed":
        changed |= {
            "message": result.message,
            "error": result.error,
            "exit_code": result.exit_code or 100,
            "cause": str(event.get("cause", "exception")),
        }
    if name == "stopped":
        changed |= {"message": "stopped before completion", "exit_code": 103}
    return changed


def _checkpoint(history: History, event: Event) -> _Changes | None:
    """Record a newer checkpoint, and reset the counts of restarts and takeovers."""
    step = int(event.get("step", 0))
    further = {"checkpoint": step, "restarts": 0, "takeovers": 0}
    return further if step > history.checkpoint else None


def _resumed(history: History, event: Event) -> _Changes | None:
    """Lower `checkpoint` to the step from which the run resumes, so that the checkpoints of
    repeated steps count as progress again."""
    step = int(event.get("step", 0))
    lowered = {"checkpoint": step, "attempt": replace(history.attempt, checkpoint=step)}
    return lowered if step < history.checkpoint else None


def _links(history: History, event: Event) -> _Changes | None:
    common = ("format", "event", "time", "author", "attempt")
    links = {name: str(link) for name, link in event.items() if name not in common}
    return {"links": tuple(sorted((dict(history.links) | links).items()))}


def _warning(_: History, event: Event) -> _Changes | None:
    return {"warning": str(event.get("message", ""))}


def _inputs(history: History, event: Event) -> _Changes | None:
    return {"model": str(event.get("model") or history.model)}


_FOLDS = {
    "state": _state,
    "claimed": _claimed,
    "attempt": _attempt,
    "restart": _restart,
    "stop_requested": _stop_requested,
    "started": _started,
    "completed": _result,
    "stopped": _result,
    "failed": _result,
    "checkpoint": _checkpoint,
    "resumed": _resumed,
    "links": _links,
    "warning": _warning,
    "inputs": _inputs,
}
