"""Computes digests of a run's source files, and refuses to continue a run whose files changed.

A leaf. Files are checked when a run resumes and when an attempt starts, because they can change
while a run waits in the queue and between two attempts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from sparring.contracts.errors import RunChanged


def code_digest(target: str) -> str:
    """Return the SHA-256 digest of the file in `FILE:NAME`; empty if it cannot be read."""
    file, colon, name = target.rpartition(":")
    return _digest(Path(file if colon else name))


def digests_of(files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 digest of each file by path; empty for files that cannot be read."""
    return {str(file): _digest(file) for file in files}


def refuse_changed_code(
    run: str, target: str, digest: str, files: Mapping[str, str], *, verb: str = "run resume"
) -> None:
    """Raise `RunChanged` if the environment's file, or a project file it imports, has changed.

    If `digest` is empty, as in a run created by hand, only `files` are checked. `verb` is the
    command that goes on with the run.
    """
    changed = [file for file, known in files.items() if _digest(Path(file)) != known]
    if not changed and digest and code_digest(target) != digest:
        changed = [target]
    if changed:
        raise RunChanged(
            f"{', '.join(sorted(changed))} has changed since run {run} was created; its "
            f"results would mix two agents. Start a new run, or use `sparring {verb} {run} "
            "--accept-changes` if the change does not matter"
        )


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
