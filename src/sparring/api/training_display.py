"""Shows the progress of a training run in this process, in lines and, on a terminal, as a bar."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sparring.contracts.progress import NewLines, duration_text


class TrainingDisplay:
    """Shows progress on standard error; shows nothing unless `is_wanted`."""

    def __init__(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._console = Console(stderr=True)
        self._new_lines = NewLines()
        self._bar: Progress | None = None
        self._task: Any = None
        if is_wanted and (sys.stderr.isatty() or "ipykernel" in sys.modules):
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

    def show(self, beat: Mapping[str, Any]) -> None:
        """Print the new lines of a heartbeat and update the bar."""
        if not self._is_wanted:
            return
        for line in self._new_lines(beat):
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)
        if self._bar is not None:
            seconds = beat.get("seconds_left")
            left = "" if seconds is None else f"{duration_text(seconds)} left"
            self._bar.update(self._task, total=beat["steps"], completed=beat["step"], left=left)
