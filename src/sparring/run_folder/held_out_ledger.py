"""The ledger of looks at held-out cases: which candidates were measured on which cases.

If many candidates are measured on the same cases, one of them may appear better by chance. Each
look is recorded twice, in a file beside the runs and in the run's events, so that neither deleting
a run nor losing the file hides a candidate. A proof is corrected for all candidates up to and
including its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.kinds import KINDS
from sparring.run_folder.events import append_event
from sparring.run_folder.files import append_line, file_lock, read_lines
from sparring.run_folder.layout import RunFolder

_EVENT = "looked"
_LOCK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """A run's measurement of a candidate; `cases` is a digest of the cases. A candidate is a model
    with the settings of its measurement: another seed or, in a proof, another number of cases or
    rollouts makes another candidate."""

    run: str
    cases: str
    candidate: str


def record_look(folder: RunFolder, cases: str, candidate: str) -> int:
    """Record a look, and return the number of candidates measured on these cases, including this
    one. A second call for the same run and cases returns the first count again, so that later
    looks do not change an earlier verdict."""
    with file_lock(folder.proofs.with_suffix(".lock"), _LOCK_SECONDS):
        for event in read_lines(folder.events):
            if event.get("event") == _EVENT and event.get("cases") == cases:
                return int(event["candidates"])
        others = {
            look.candidate
            for look in (*_in_ledger(folder.proofs), *_in_folders(folder.path.parent))
            if look.cases == cases and look.run != folder.id
        }
        number = len(others | {candidate})
        row = {"run": folder.id, "cases": cases, "candidate": candidate}
        append_line(folder.proofs, {"format": 1, **row})
        data = {"cases": cases, "candidate": candidate, "candidates": number}
        append_event(folder, _EVENT, author="worker", **data)
    return number


def count_candidates(folder: RunFolder) -> int:
    """Return the largest count that `record_look` returned for a run; 1 if it was not called."""
    looks = [event for event in read_lines(folder.events) if event.get("event") == _EVENT]
    return max((int(event["candidates"]) for event in looks), default=1)


def runs_that_looked(folder: RunFolder, cases: str) -> set[str]:
    """Return the ids of the runs that measured a candidate on these cases."""
    looks = (*_in_ledger(folder.proofs), *_in_folders(folder.path.parent))
    return {look.run for look in looks if look.cases == cases}


def _in_ledger(ledger: Path) -> Iterator[Look]:
    for row in read_lines(ledger):
        run = str(row.get("run") or row.get("proof"))
        yield Look(run, str(row.get("cases")), str(row.get("candidate") or row.get("training")))


def _in_folders(runs: Path) -> Iterator[Look]:
    for spec in runs.glob("*/spec.json"):
        folder = RunFolder(spec.parent)
        with contextlib.suppress(OSError, ValueError):
            kind = KINDS.get(str(folder.read_spec().get("kind")))
            if kind is None or not kind.plays_held_out:
                continue
            for event in read_lines(folder.events):
                if event.get("event") == _EVENT:
                    yield Look(folder.id, str(event.get("cases")), str(event.get("candidate")))
