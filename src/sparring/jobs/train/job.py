"""Trains as a spec describes, in one process of a worker group."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Mapping
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.progress import NewLines
from sparring.contracts.training import TrainSpec
from sparring.environments.task import Task
from sparring.jobs.run_job import Attempt
from sparring.jobs.train.training import Training
from sparring.jobs.worker import report_event
from sparring.learning.engine import Launched
from sparring.learning.work import load_work


class TrainJob(Training):
    """A training whose progress lines go to its log. SIGTERM and Ctrl-C stop it after a step."""

    def __init__(self, attempt: Attempt, spec: TrainSpec, task: Task) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        launched = Launched.here(spec.world_size)
        task.refuse_untrainable(spec.settings)  # before the model is loaded, which takes minutes
        suite = task.suite
        if (held_out := suite.size(Split.HELD_OUT)) < suite.minimum:
            message = (
                f"there are {held_out} held-out cases, and a proof needs {suite.minimum}: "
                "this training cannot be proved"
            )
            report_event(attempt.folder, "note", message=message)
        new_lines = NewLines()

        def print_lines(beat: Mapping[str, Any]) -> None:
            with contextlib.suppress(OSError):  # the disk may be full
                for line in new_lines(beat):
                    print(line, flush=True)

        super().__init__(
            attempt,
            load_work(
                task,
                spec.settings,
                spec.policy,
                launched.world_size,
                code_digest=spec.code_digest,
            ),
            launched,
            on_progress=print_lines,
            should_stop=stop.is_set,
        )
