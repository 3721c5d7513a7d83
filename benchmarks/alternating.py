"""Two trainers in one process, a step of one and a step of the other, timed side by side.

Machines are noisy; what disturbs one of them disturbs the other as much.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

from transformers import TrainerCallback


class Turns:
    """Hands the machine from one trainer to the other at the end of each step."""

    def __init__(self, names: tuple[str, str]) -> None:
        self._turn = {name: threading.Semaphore(number == 0) for number, name in enumerate(names)}
        self._next = {names[0]: names[1], names[1]: names[0]}
        self.seconds: dict[str, list[float]] = {name: [] for name in names}

    def callback(self, name: str) -> TrainerCallback:
        turns = self

        class Turn(TrainerCallback):
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                turns._turn[name].acquire()
                self.started = time.perf_counter()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                turns.seconds[name].append(time.perf_counter() - self.started)
                turns._turn[turns._next[name]].release()

        return Turn()

    def race(self, trainers: dict[str, Any]) -> dict[str, float]:
        """Run both to the end; the median seconds of a step, the first one left out."""
        failures: list[BaseException] = []

        def run(name: str) -> None:
            try:
                trainers[name]()
            except BaseException as error:
                failures.append(error)
                self._turn[self._next[name]].release(100)

        threads = [threading.Thread(target=run, args=(name,)) for name in trainers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return {name: statistics.median(given[1:]) for name, given in self.seconds.items()}
