"""Digests of a run's source files, and the refusal to continue when they have changed.

A leaf: both a resume and every attempt check, because files change while a run waits and between
two attempts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from sparring.contracts.errors import RunChanged


def code_digest(target: str) -> str:
    """Return the digest of the file in `FILE:NAME`; empty if it cannot be read."""
    file, colon, name = target.rpartition(":")
    return _digest(Path(file if colon else name))


def digests_of(files: Iterable[Path]) -> dict[str, str]:
    """Return the digest of each file, by its path."""
    return {str(file): _digest(file) for file in files}


def refuse_changed_code(run: str, target: str, digest: str, files: Mapping[str, str]) -> None:
    """Raise `RunChanged` if the environment's file, or a project file it imports, has changed.

    A run created by hand without a digest is checked against `files` only.
    """
    changed = [file for file, known in files.items() if _digest(Path(file)) != known]
    if not changed and digest and code_digest(target) != digest:
        changed = [target]
    if changed:
        raise RunChanged(
            f"{', '.join(sorted(changed))} has changed since run {run} was created; its "
            "results would mix two agents. Start a new run, or use `sparring run resume "
            "--accept-changes` if the change does not matter"
        )


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
