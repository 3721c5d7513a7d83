"""The files behind a run: what they were when it started, and whether they still are."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sparring.contracts.errors import RunChanged
from sparring.run_folder import RunFolder


def code_digest(target: str) -> str:
    """Of the file behind `FILE:NAME`; empty where it is gone."""
    file, colon, name = target.rpartition(":")
    try:
        return hashlib.sha256(Path(file if colon else name).read_bytes()).hexdigest()
    except OSError:
        return ""


def refuse_changed_code(folder: RunFolder, target: str, digest: str) -> None:
    if code_digest(target) != digest:
        raise RunChanged(
            f"{target} has changed since run {folder.id} started, and its figures would mix two "
            "agents; start a new run, or pass --accept-changes if the change does not matter"
        )
