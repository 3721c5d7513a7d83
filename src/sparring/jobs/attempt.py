"""The arguments that every kind of run receives from its process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparring.jobs.heartbeat import Heartbeat
from sparring.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a run: its folder, its spec as read from disk, and its heartbeat.

    `accept_changes` permits a resumed run to use changed code or inputs.
    """

    folder: RunFolder
    spec: dict[str, Any]
    heartbeat: Heartbeat
    accept_changes: bool = False
