"""Writes the metrics and the heartbeat of a training run, on rank 0, and logs to trackers."""

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
_HEARTBEAT_SECONDS = 1.0
_RECENT_STEPS = 10


class Reporter:
    """Writes one metrics row per report of the engine, and a heartbeat every second."""

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
        self._heartbeat: dict[str, Any] = {
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
        self._thread = threading.Thread(target=self._write_heartbeats, daemon=True)

    def begin(self, step: int) -> None:
        """Start the heartbeat of a run that begins (`step` 0) or resumes after `step`."""
        self._heartbeat["step"] = step
        self._last, self._last_cpu = time.monotonic(), time.process_time()
        self._on_progress(self._heartbeat)
        self._thread.start()

    def say(self, line: str) -> None:
        """Append a message to the heartbeat, and report progress."""
        self._heartbeat["said"].append(line)
        self._on_progress(self._heartbeat)

    def step(self, step: int, row: Mapping[str, Any]) -> None:
        """Write the metrics of finished optimizer steps, of which `step` is the last. Seconds are
        means per step."""
        now, cpu = time.monotonic(), time.process_time()
        steps = max(1, step - self._heartbeat["step"])
        cpu_seconds, self._last_cpu = (cpu - self._last_cpu) / steps, cpu
        self._durations.append((now - self._last) / steps)
        self._last = now
        metrics = {
            **row,
            "seconds": round(self._durations[-1], 3),
            "cpu_seconds": round(cpu_seconds, 3),  # of rank 0
        }
        self._write(step, metrics)
        self._heartbeat |= {
            "step": step,
            "metrics": metrics,
            "seconds_left": round(self._seconds_left(step), 1),
        }
        self._on_progress(self._heartbeat)
        self._write_heartbeat()

    def validation(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write the metrics of a validation after `step`."""
        self._write(step, {f"validation/{name}": value for name, value in figures.items()})
        self._heartbeat |= {"validation": figures.get("reward"), "validated_at": step}
        self._on_progress(self._heartbeat)
        now = time.monotonic()
        self._validation_seconds = now - self._last
        self._last, self._last_cpu = now, time.process_time()  # steps exclude validation

    def _seconds_left(self, step: int) -> float:
        """Estimate the remaining seconds from the mean of recent steps and the last validation."""
        mean = sum(self._durations) / len(self._durations)
        interval, last = self._checkpoint_steps, self._steps
        validations = last // interval - step // interval + (last % interval > 0)
        return mean * (last - step) + self._validation_seconds * validations

    def end(self) -> None:
        """Write the last heartbeat and close the trackers."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * _HEARTBEAT_SECONDS)
        self._write_heartbeat()
        self._trackers.finish()

    def _write(self, step: int, row: Mapping[str, Any]) -> None:
        append_line(self._folder.metrics, {"attempt": self._attempt, "step": step, **row})
        self._trackers.log(step, row)

    def _write_heartbeats(self) -> None:
        while not self._done.wait(_HEARTBEAT_SECONDS):
            self._write_heartbeat()

    def _write_heartbeat(self) -> None:
        heartbeat = {
            "format": 1,
            "pid": os.getpid(),
            "time": time.time(),
            "tokens_drawn": self._tokens_drawn(),
            **self._heartbeat,
        }
        write_json(self._folder.heartbeat, heartbeat, durable=False)
