"""The activity log: all calls that change state, and refused calls of operators and viewers.

A request is logged before it is carried out, and its outcome afterwards: if the process dies in
between, the log has a request without an outcome. An operator's call that cannot be logged is
refused; an owner's call is carried out, with a warning.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sparring.contracts.errors import (
    ActivityLogBusy,
    InfrastructureError,
    LauncherFailed,
    OverBudget,
    SparringError,
)
from sparring.contracts.json import JsonObject
from sparring.run_folder.hash_chain import HashChain

DAY_SECONDS = 86_400.0
_HOUR_SECONDS = 3_600.0
_MAX_REFUSALS_LOGGED = 60
_MAX_CHARACTERS = 2_000
_CLOCK_ERROR_SECONDS = 7 * DAY_SECONDS
_LOGGED_RESULT_FIELDS = ("run", "plan", "proof", "state", "message")


class CallOutcome(StrEnum):
    """The stage of a call that a line of the log records: its request or its end."""

    REQUESTED = "requested"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One call: its caller, its verb and its request. `starts` marks calls that start a run."""

    who: str
    role: str
    verb: str
    request: JsonObject
    starts: bool = False
    call: str = field(default_factory=lambda: secrets.token_hex(6))

    def line(self, outcome: CallOutcome, **more: Any) -> JsonObject:
        """Return the log line for one outcome of this call."""
        line = {"time": time.time(), "call": self.call, "who": self.who, "role": self.role}
        line |= {"verb": self.verb, "outcome": outcome.value}
        if self.starts:
            line["starts"] = True
        return {**line, **more}


def activity_log(runs: Path) -> HashChain:
    """Open the log of a folder of runs."""
    return HashChain(runs / ".sparring" / "activity.jsonl")


@contextmanager
def logged(
    entry: LoggedCall, runs: Path, *, max_starts: Callable[[], int | None], is_binding: bool
) -> Iterator[JsonObject]:
    """Log one call that changes state. The yielded table is logged as its result.

    `max_starts` returns how many runs all operators together may start in 24 hours. Counting and
    logging are one atomic step, so concurrent calls cannot exceed the limit. With `is_binding`, a
    call whose request cannot be logged is refused.
    """
    log = activity_log(runs)
    result: JsonObject = {}
    request = entry.line(CallOutcome.REQUESTED, request=_short(entry.request))
    with _handle_write_errors(is_binding):
        try:
            log.append(request, lambda chain: _refuse_over_limit(chain, entry, max_starts()))
        except SparringError as error:
            if not isinstance(error, ActivityLogBusy):
                note_refusal(entry, runs, error, is_binding=is_binding)
            raise
    try:
        yield result
    except Exception as error:
        with _handle_write_errors(is_binding):
            log.append(entry.line(_outcome(error), reason=_reason(error)))
        raise
    with _handle_write_errors(is_binding=False):  # the call was carried out; its request is logged
        log.append(entry.line(CallOutcome.DONE, result=_short(result)))


def note_refusal(entry: LoggedCall, runs: Path, error: Exception, *, is_binding: bool) -> None:
    """Log the refusal of a call whose request was not logged.

    At most `_MAX_REFUSALS_LOGGED` refusals per caller and hour are logged. Further refusals are
    only counted, and the next logged refusal states the count.
    """
    skipped = _REFUSALS.count(runs, entry.who)
    if skipped is None:
        return
    more = {"also_refused": skipped} if skipped else {}
    line = entry.line(_outcome(error), request=_short(entry.request), reason=_reason(error), **more)
    with _handle_write_errors(is_binding):
        activity_log(runs).append(line)


def note_done(entry: LoggedCall, runs: Path, result: JsonObject) -> None:
    """Log a completed call of the owner that created the folder of runs."""
    line = entry.line(CallOutcome.DONE, request=_short(entry.request), result=_short(result))
    with _handle_write_errors(is_binding=False):
        activity_log(runs).append(line)


class _Refusals:
    """Limits the refusals that this process logs per hour, for each caller and folder of runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: dict[tuple[Path, str], deque[float]] = {}
        self._skipped: Counter[tuple[Path, str]] = Counter()

    def count(self, runs: Path, who: str) -> int | None:
        """Count one refusal. Return the number skipped before it, or None if it is skipped, too."""
        now, caller = time.monotonic(), (runs, who)
        with self._lock:
            logged_at = self._logged.setdefault(caller, deque())
            while logged_at and logged_at[0] < now - _HOUR_SECONDS:
                logged_at.popleft()
            if len(logged_at) >= _MAX_REFUSALS_LOGGED:
                self._skipped[caller] += 1
                return None
            logged_at.append(now)
            return self._skipped.pop(caller, 0)


_REFUSALS = _Refusals()


def starts_today(chain: HashChain, now: float | None = None) -> int:
    """Count the runs that operators started or resumed in the last 24 hours.

    Refusals and calls that started nothing new do not count. A request without an outcome counts,
    because it may have started a run.
    """
    since = (time.time() if now is None else now) - DAY_SECONDS
    uncounted: set[str] = set()
    count = 0
    for entry in chain.backwards():
        when = float(entry.get("time", 0.0))
        if when < since - _CLOCK_ERROR_SECONDS:
            break
        if when < since:  # a clock may have been wrong: an earlier line can have a later time
            continue
        if entry.get("role") == "owner" or not entry.get("starts"):
            continue
        if (
            entry["outcome"] == CallOutcome.REFUSED
            or entry.get("result", {}).get("is_new") is False
        ):
            uncounted.add(entry["call"])
        elif entry["outcome"] == CallOutcome.REQUESTED and entry["call"] not in uncounted:
            count += 1
    return count


def facts_of(result: BaseModel) -> JsonObject:
    """Return the fields of a result that are logged: run, plan, proof, state and message."""
    values = {name: getattr(result, name, None) for name in _LOGGED_RESULT_FIELDS}
    facts: JsonObject = {name: str(value) for name, value in values.items() if value}
    return facts if getattr(result, "is_new", True) else {**facts, "is_new": False}


def _refuse_over_limit(chain: HashChain, entry: LoggedCall, most: int | None) -> None:
    if most is None or not entry.starts:
        return
    used = starts_today(chain)
    if used >= most:
        raise OverBudget(
            f"operators have started {used} runs within 24 hours, and this project allows {most}; "
            "wait, or have the owner raise starts_per_day in [budget] of the project file"
        )


def _outcome(error: Exception) -> CallOutcome:
    """Return `refused` if the call had no effect, `failed` if it may have had one."""
    is_refusal = isinstance(error, SparringError)
    has_begun = isinstance(error, InfrastructureError | LauncherFailed)
    return CallOutcome.REFUSED if is_refusal and not has_begun else CallOutcome.FAILED


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_CHARACTERS]


def _short(table: JsonObject) -> Any:
    """Return the table, or its first characters if it is long, so that a log line stays short."""
    text = json.dumps(table, default=repr)
    return table if len(text) <= _MAX_CHARACTERS else {"shortened": text[:_MAX_CHARACTERS]}


@contextmanager
def _handle_write_errors(is_binding: bool) -> Iterator[None]:
    """Raise ActivityLogBusy if `is_binding`, else log a warning: an owner must be able to stop a
    run on a full disk."""
    try:
        yield
    except (OSError, ActivityLogBusy) as error:
        if is_binding:
            raise ActivityLogBusy(f"the activity log cannot be written: {error}") from error
        logging.getLogger(__name__).warning("not written to the activity log: %s", error)
