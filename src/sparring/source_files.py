"""The file behind a run: what it was when the run was asked for, and whether it still is.

A leaf: whoever resumes a run looks, and so does every attempt at it, for files change while a run
waits, and between two attempts.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sparring.contracts.errors import RunChanged


def code_digest(target: str) -> str:
    """Of the file behind `FILE:NAME`; empty where it is gone."""
    file, colon, name = target.rpartition(":")
    try:
        return hashlib.sha256(Path(file if colon else name).read_bytes()).hexdigest()
    except OSError:
        return ""


def refuse_changed_code(run: str, target: str, digest: str) -> None:
    """A run that was asked for without a digest, by hand, is not held to one."""
    if digest and code_digest(target) != digest:
        raise RunChanged(
            f"{target} has changed since run {run} was asked for, and its figures would mix two "
            "agents; start a new run, or `sparring run resume --accept-changes` if the change does "
            "not matter"
        )
