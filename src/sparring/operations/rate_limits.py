"""Repeats the last answer to operators that poll a run too often. News is never delayed.

The last answer is stored beside the runs, so the limit holds across processes.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from sparring.contracts.json import JsonObject
from sparring.operations.operation import Caller
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, write_json
from sparring.runs.processes import boot_id, since_boot
from sparring.runs.status import RunStatus

LEAST_SECONDS, MOST_SECONDS = 5.0, 60.0


def seconds_between(status: RunStatus) -> float:
    """Return the seconds for which an answer is repeated: about one step, from 5 to 60."""
    if status.state.has_ended:
        return MOST_SECONDS
    seconds = float(status.metrics.get("seconds") or LEAST_SECONDS)
    return min(MOST_SECONDS, max(LEAST_SECONDS, seconds))


def last_answer(folder: RunFolder, status: RunStatus, caller: Caller) -> JsonObject | None:
    """Return this caller's last answer if it is recent and there is no news since, otherwise None.
    Owners always get None."""
    if caller.is_owner:
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = read_json(_path(folder, caller))
        age = since_boot() - float(stored["since_boot"])
        is_recent = stored["boot"] == boot_id() and 0 <= age < seconds_between(status)
        if is_recent and stored["news"] == _news(status):
            left = round(seconds_between(status) - age, 1)
            return {**stored["answer"], "is_repeated": True, "next_check_seconds": left}
    return None


def store_answer(folder: RunFolder, status: RunStatus, caller: Caller, answer: JsonObject) -> None:
    """Store an operator's answer for `last_answer`."""
    if caller.is_owner:
        return
    stamp = {"format": 1, "boot": boot_id(), "since_boot": since_boot(), "news": _news(status)}
    with contextlib.suppress(OSError):
        write_json(_path(folder, caller), {**stamp, "answer": answer}, durable=False)


def _news(status: RunStatus) -> list[Any]:
    """Return the facts that count as news when they change."""
    history = status.history
    return [
        history.state.value,
        history.life,
        history.restarts,
        history.warning,
        history.is_stop_requested,
    ]


def _path(folder: RunFolder, caller: Caller) -> Path:
    caller_digest = hashlib.sha256(caller.name.encode()).hexdigest()[:12]
    return folder.path.parent / ".sparring" / "answers" / f"{folder.id}-{caller_digest}.json"
