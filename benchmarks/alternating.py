"""Times two trainers in one process, alternating between them after each step.

Other load on the machine then affects both alike.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

from transformers import TrainerCallback


class Alternation:
    """Lets two trainers run in alternation, one step at a time, and times each step."""

    def __init__(self, names: tuple[str, str]) -> None:
        self._may_step = {
            name: threading.Semaphore(number == 0) for number, name in enumerate(names)
        }
        self._next = {names[0]: names[1], names[1]: names[0]}
        self.seconds: dict[str, list[float]] = {name: [] for name in names}

    def callback(self, name: str) -> TrainerCallback:
        alternation = self

        class StepTimer(TrainerCallback):
            """A step is what lies between the ends of two: playing, scoring and the update."""

            def on_train_begin(self, *_: Any, **__: Any) -> None:
                self.begin()

            def begin(self) -> None:
                alternation._may_step[name].acquire()
                self.started = time.perf_counter()

            def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
                alternation.seconds[name].append(time.perf_counter() - self.started)
                alternation._may_step[alternation._next[name]].release()
                if state.global_step < state.max_steps:
                    self.begin()

        return StepTimer()

    def run(self, trainers: dict[str, Any]) -> dict[str, float]:
        """Run both to the end; return the median seconds of a step, without the first step."""
        failures: list[BaseException] = []

        def train(name: str) -> None:
            try:
                trainers[name]()
            except BaseException as error:
                failures.append(error)
                self._may_step[self._next[name]].release(100)

        threads = [threading.Thread(target=train, args=(name,)) for name in trainers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return {name: statistics.median(seconds[1:]) for name, seconds in self.seconds.items()}
