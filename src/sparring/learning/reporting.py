"""What a training tells while it runs: metrics, heartbeat, trackers. On rank 0 only."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sparring.learning.batches import BatchPlan
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, write_json
from sparring.trackers import Trackers

OnProgress = Callable[[Mapping[str, Any]], None]
_BEAT_SECONDS = 1.0
_RECENT_STEPS = 10


class Reporter:
    """Writes one row per step, and a heartbeat with progress inside of steps."""

    def __init__(
        self,
        folder: RunFolder,
        plan: BatchPlan,
        trackers: Trackers,
        *,
        attempt: int = 1,
        tokens_drawn: Callable[[], int] = lambda: 0,
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        self._folder = folder
        self._steps = plan.steps
        self._trackers = trackers
        self._attempt = attempt
        self._tokens_drawn = tokens_drawn
        self._on_progress = on_progress
        self._beat: dict[str, Any] = {
            "step": 0,
            "steps": plan.steps,
            "metrics": {},
            "said": [f"run {folder.id}: {plan}", *plan.notes],
        }
        self._checkpoint_steps = plan.checkpoint_steps
        self._validation_seconds = 0.0
        self._durations: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._last = time.monotonic()
        self._last_cpu = time.process_time()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)

    def begin(self, step: int) -> None:
        self._beat["step"] = step
        self._last, self._last_cpu = time.monotonic(), time.process_time()
        self._on_progress(self._beat)
        self._thread.start()

    def say(self, line: str) -> None:
        """Something that whoever looks should see once."""
        self._beat["said"].append(line)
        self._on_progress(self._beat)

    def step(self, step: int, row: Mapping[str, Any]) -> None:
        """An optimizer step is done."""
        now, cpu = time.monotonic(), time.process_time()
        taken_cpu, self._last_cpu = (cpu - self._last_cpu) / max(1, step - self._beat["step"]), cpu
        self._durations.append((now - self._last) / max(1, step - self._beat["step"]))
        self._last = now
        told = {
            **row,
            "seconds": round(self._durations[-1], 3),
            "cpu_seconds": round(taken_cpu, 3),  # of rank 0
        }
        self._write(step, told)
        self._beat |= {
            "step": step,
            "metrics": told,
            "seconds_left": round(self._seconds_left(step), 1),
        }
        self._on_progress(self._beat)
        self._write_beat()

    def validation(self, step: int, figures: Mapping[str, Any]) -> None:
        self._write(step, {f"validation/{name}": value for name, value in figures.items()})
        self._beat |= {"validation": figures.get("reward"), "validated_at": step}
        self._on_progress(self._beat)
        now = time.monotonic()
        self._validation_seconds = now - self._last
        self._last, self._last_cpu = now, time.process_time()  # it is no step

    def _seconds_left(self, step: int) -> float:
        """Steps at the mean of the recent ones, and the validations between them."""
        mean = sum(self._durations) / len(self._durations)
        every, last = self._checkpoint_steps, self._steps
        validations = last // every - step // every + (last % every > 0)
        return mean * (last - step) + self._validation_seconds * validations

    def end(self) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * _BEAT_SECONDS)
        self._write_beat()
        self._trackers.finish()

    def _write(self, step: int, row: Mapping[str, Any]) -> None:
        append_line(self._folder.metrics, {"attempt": self._attempt, "step": step, **row})
        self._trackers.log(step, row)

    def _keep_beating(self) -> None:
        while not self._done.wait(_BEAT_SECONDS):
            self._write_beat()

    def _write_beat(self) -> None:
        beat = {
            "format": 1,
            "pid": os.getpid(),
            "time": time.time(),
            "tokens_drawn": self._tokens_drawn(),
            **self._beat,
        }
        write_json(self._folder.heartbeat, beat, durable=False)
