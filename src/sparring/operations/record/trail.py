"""The record of who did what: every call that changes something, and every refusal.

What is asked is written down before it is done, and what came of it after: a process that dies
in between leaves a question without an answer, never a deed without a record. An operator's call
that cannot be recorded is refused.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sparring.contracts.errors import (
    LauncherFailed,
    MachineryFailure,
    OverBudget,
    SparringError,
    TrailBusy,
)
from sparring.run_folder.chain import Chain

DAY_SECONDS = 86_400.0
_MOST_CHARACTERS = 2_000
_CLOCK_SECONDS = 7 * DAY_SECONDS
_TOLD = ("run", "plan", "proof", "state", "message")  # of a result


class Outcome(StrEnum):
    ASKED = "asked"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Entry:
    """Who asks for what."""

    who: str
    role: str
    verb: str
    asked: Mapping[str, Any]
    starts: bool = False
    call: str = field(default_factory=lambda: secrets.token_hex(6))

    def line(self, outcome: Outcome, **more: Any) -> dict[str, Any]:
        told = {"time": time.time(), "call": self.call, "who": self.who, "role": self.role}
        told |= {"verb": self.verb, "outcome": outcome.value}
        if self.starts:
            told["starts"] = True
        return {**told, **more}


def trail_of(runs: Path) -> Chain:
    return Chain(runs / ".sparring" / "audit.jsonl")


@contextmanager
def recorded(
    entry: Entry, runs: Path, *, most_starts: Callable[[], int | None], is_binding: bool
) -> Iterator[dict[str, Any]]:
    """Around one call that changes something. What it puts into the table is told as its result.

    `most_starts` bounds the starts of a day, by all operators together; the look and the entry
    are one step, so that it holds however many ask at once.
    """
    trail = trail_of(runs)
    result: dict[str, Any] = {}
    asked = entry.line(Outcome.ASKED, asked=_short(entry.asked))
    with _as_far_as_possible(is_binding):
        try:
            trail.append(asked, lambda chain: _refuse_one_more(chain, entry, most_starts()))
        except SparringError as error:
            if not isinstance(error, TrailBusy):
                note_refusal(entry, runs, error, is_binding=is_binding)
            raise
    try:
        yield result
    except Exception as error:
        with _as_far_as_possible(is_binding):
            trail.append(entry.line(_outcome(error), reason=_reason(error)))
        raise
    with _as_far_as_possible(is_binding):
        trail.append(entry.line(Outcome.DONE, result=_short(result)))


def note_refusal(entry: Entry, runs: Path, error: Exception, *, is_binding: bool) -> None:
    """Of a call that would have changed nothing, or that never became one."""
    told = entry.line(_outcome(error), asked=_short(entry.asked), reason=_reason(error))
    with _as_far_as_possible(is_binding):
        trail_of(runs).append(told)


def note_done(entry: Entry, runs: Path, result: Mapping[str, Any]) -> None:
    """Of an owner's call that made the folder which holds the record."""
    told = entry.line(Outcome.DONE, asked=_short(entry.asked), result=_short(result))
    with _as_far_as_possible(is_binding=False):
        trail_of(runs).append(told)


def starts_today(chain: Chain, now: float | None = None) -> int:
    """Runs that operators started or went on with in the last 24 hours. What was refused, or was
    done already, does not count; a question without an answer does: nobody knows what came of
    it."""
    since = (time.time() if now is None else now) - DAY_SECONDS
    idle: set[str] = set()
    count = 0
    for each in chain.backwards():
        when = float(each.get("time", 0.0))
        if when < since - _CLOCK_SECONDS:
            break
        if when < since:  # a clock may have been wrong for a while
            continue
        if each.get("role") == "owner" or not each.get("starts"):
            continue
        if each["outcome"] == Outcome.REFUSED or each.get("result", {}).get("is_new") is False:
            idle.add(each["call"])
        elif each["outcome"] == Outcome.ASKED and each["call"] not in idle:
            count += 1
    return count


def told_of(result: BaseModel) -> dict[str, Any]:
    """What a record keeps of a result: which run or plan it is about, and how that is."""
    there = {name: getattr(result, name, None) for name in _TOLD}
    told: dict[str, Any] = {name: str(value) for name, value in there.items() if value}
    return told if getattr(result, "is_new", True) else {**told, "is_new": False}


def _refuse_one_more(chain: Chain, entry: Entry, most: int | None) -> None:
    if most is None or not entry.starts:
        return
    used = starts_today(chain)
    if used >= most:
        raise OverBudget(
            f"operators have started {used} runs within 24 hours, and this project allows {most}; "
            "wait, or have the owner raise starts_per_day in [budget] of the project file"
        )


def _outcome(error: Exception) -> Outcome:
    """Refused means that nothing was done."""
    is_refusal = isinstance(error, SparringError)
    has_begun = isinstance(error, MachineryFailure | LauncherFailed)
    return Outcome.REFUSED if is_refusal and not has_begun else Outcome.FAILED


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]


def _short(table: Mapping[str, Any]) -> Any:
    """As asked, but for what would fill the disk."""
    told = json.dumps(table, default=repr)
    return table if len(told) <= _MOST_CHARACTERS else {"shortened": told[:_MOST_CHARACTERS]}


@contextmanager
def _as_far_as_possible(is_binding: bool) -> Iterator[None]:
    """An owner whose disk is full can still stop a run."""
    try:
        yield
    except (OSError, TrailBusy) as error:
        if is_binding:
            raise TrailBusy(f"the audit trail cannot be written: {error}") from error
        logging.getLogger(__name__).warning("not in the audit trail: %s", error)
