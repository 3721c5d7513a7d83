"""Callers that ask too often get the last answer again, and when to come back; news is never
withheld.

It spares an AI operator the tokens, and a shared file system the reads. What was answered last
is kept beside the runs, so that it holds across processes.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from sparring.operations.operation import Caller
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, write_json
from sparring.runs.processes import boot_id, since_boot
from sparring.runs.status import RunStatus

LEAST_SECONDS, MOST_SECONDS = 5.0, 60.0


def seconds_between(status: RunStatus) -> float:
    """How soon there can be something new: about a step from now."""
    if status.state.has_ended:
        return MOST_SECONDS
    row = (status.progress or {}).get("metrics") or {}
    return min(MOST_SECONDS, max(LEAST_SECONDS, float(row.get("seconds") or LEAST_SECONDS)))


def last_answer(folder: RunFolder, status: RunStatus, caller: Caller) -> dict[str, Any] | None:
    """What this caller was told a moment ago, if nothing of note has happened since. An owner is
    always answered afresh."""
    if caller.is_owner:
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = read_json(_place(folder, caller))
        age = since_boot() - float(kept["since_boot"])
        is_recent = kept["boot"] == boot_id() and 0 <= age < seconds_between(status)
        if is_recent and kept["news"] == _news(status):
            left = round(seconds_between(status) - age, 1)
            return {**kept["answer"], "is_repeated": True, "next_check_seconds": left}
    return None


def keep_answer(
    folder: RunFolder, status: RunStatus, caller: Caller, answer: dict[str, Any]
) -> None:
    if caller.is_owner:
        return
    told = {"format": 1, "boot": boot_id(), "since_boot": since_boot(), "news": _news(status)}
    with contextlib.suppress(OSError):
        write_json(_place(folder, caller), {**told, "answer": answer}, durable=False)


def _news(status: RunStatus) -> list[Any]:
    """What no caller has to wait for."""
    history = status.history
    return [
        history.state.value,
        history.life,
        history.restarts,
        history.warning,
        history.is_to_stop,
    ]


def _place(folder: RunFolder, caller: Caller) -> Path:
    who = hashlib.sha256(caller.name.encode()).hexdigest()[:12]
    return folder.path.parent / ".sparring" / "answers" / f"{folder.id}-{who}.json"
