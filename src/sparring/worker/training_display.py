"""How a training in this process shows itself: a bar on a terminal, a line a step elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sparring.contracts.progress import headline, in_words

_QUIET_SECONDS = 5.0


class TrainingDisplay:
    """Shows progress where somebody looks; in a log, at most a line every few seconds."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: Any = None
        self._last_line = 0.0
        if wanted and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            self._bar = Progress(
                TextColumn("training"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=self._console,
            )

    def __enter__(self) -> TrainingDisplay:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("training", total=None, left="playing the first step")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, message: str) -> None:
        if self._wanted:
            self._console.print(message, soft_wrap=True, highlight=False)

    def show(self, beat: Mapping[str, Any]) -> None:
        if self._bar is not None:
            left = beat.get("seconds_left")
            told = "" if left is None else f"{in_words(left)} left"
            self._bar.update(self._task, total=beat["steps"], completed=beat["step"], left=told)
        if self._bar is not None or self._is_time(beat):
            self.say(f"step {beat['step']}/{beat['steps']} · {headline(beat)}")

    def _is_time(self, beat: Mapping[str, Any]) -> bool:
        """In a log, a line every few seconds is enough."""
        now = time.monotonic()
        if now - self._last_line < _QUIET_SECONDS and beat["step"] < beat["steps"]:
            return False
        self._last_line = now
        return True
