"""A worker's pulse: that it lives, how much it has done, and what it is doing.

Beats from a thread of its own, from the first moment on, before anything heavy is imported. A
process that lives without doing more is hung; whoever supervises it can tell by the counter, and
tell others what it was doing. A worker whose gang has been replaced ends itself here.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, write_json

SUPERSEDED = 75
_BEAT_SECONDS = 0.5
_LEAST_SECONDS = 0.05


class Pulse:
    """One for each process of a run."""

    def __init__(self, folder: RunFolder, rank: int, attempt: int | None) -> None:
        self._folder = folder
        self._rank = rank
        self._attempt = attempt
        self._doing = "starting"
        self._notes = 0
        self._beats = 0
        self._told_at = 0.0
        self._step: int | None = None
        self._counters: list[Callable[[], int]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)

    def begin(self) -> None:
        self._beat()
        self._thread.start()

    def end(self) -> None:
        self._done.set()

    def note(self, doing: str, step: int | None = None) -> None:
        """Something has been done, and this comes next. Told at once, or nearly: whoever finds this
        process dead in the next instant should know what it was doing."""
        self._doing = doing
        self._notes += 1
        self._step = self._step if step is None else step
        if time.monotonic() - self._told_at > _LEAST_SECONDS:
            self._beat()

    def watch(self, counter: Callable[[], int]) -> None:
        """A number that grows while work is done: tokens, rollouts."""
        self._counters.append(counter)

    def _keep_beating(self) -> None:
        while not self._done.wait(_BEAT_SECONDS):
            self._beat()
            if self._is_superseded():
                os._exit(SUPERSEDED)  # others do this work now; whatever we wrote would harm it

    def _beat(self) -> None:
        self._beats += 1
        self._told_at = time.monotonic()
        told: dict[str, Any] = {
            "format": 1,
            "pid": os.getpid(),
            "attempt": self._attempt,
            "beats": self._beats,
            "progress": self._notes + sum(counter() for counter in self._counters),
            "doing": self._doing,
            "step": self._step,
        }
        with contextlib.suppress(OSError):
            write_json(self._folder.pulse(self._rank), told, durable=False)

    def _is_superseded(self) -> bool:
        if self._attempt is None:
            return False
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(read_json(self._folder.gang)["attempt"]) > self._attempt
        return False
