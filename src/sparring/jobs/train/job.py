"""Runs the training that a spec describes, in one process of a worker group."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Mapping
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.progress import NewLines
from sparring.contracts.training import TrainSpec
from sparring.engine.configuration import check
from sparring.engine.loading import load
from sparring.engine.ranks import Launched
from sparring.engine.work import TrainWork
from sparring.environments.environment import Environment, read_parts
from sparring.jobs.case_loader import RunCases
from sparring.jobs.environment_opening import opened
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.run_lock import report_event
from sparring.jobs.train.training import Training
from sparring.measures import MeasureSet
from sparring.player.trainability import (
    refuse_untrainable,
    refuse_without_tools,
)
from sparring.run_folder import RunFolder


def train_environment(
    folder: RunFolder,
    spec: TrainSpec,
    cases: RunCases,
    *,
    accept_changes: bool,
    heartbeat: Heartbeat,
) -> str:
    """Train and return "completed" or "stopped". Inputs are checked before the model is loaded,
    which may take minutes."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    launched = Launched.here()
    launched.require(spec.world_size)
    with opened(
        folder,
        spec.target,
        spec.config,
        is_unsandboxed=spec.settings.unsandboxed,
        rank=launched.rank,
        has_one_host=spec.nodes == 1,
    ) as environment:
        training = Training(
            folder,
            _load(folder, spec, environment, launched.world_size, cases),
            launched,
            on_progress=_LinePrinter(),
            should_stop=stop.is_set,
            accept_changes=accept_changes,
            heartbeat=heartbeat,
        )
        training.run()
    return "stopped" if training.stopped else "completed"


class _LinePrinter:
    """Prints the progress lines of a training run into its log."""

    def __init__(self) -> None:
        self._new_lines = NewLines()

    def __call__(self, beat: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the disk may be full
            for line in self._new_lines(beat):
                print(line, flush=True)


def _load(
    folder: RunFolder,
    spec: TrainSpec,
    environment: Environment,
    world_size: int,
    cases: RunCases,
) -> TrainWork:
    parts = read_parts(environment, lambda: cases.suite(environment))
    refuse_untrainable(parts.agent, spec.settings.temperature, spec.settings.train_agents)
    if spec.settings.learns_results:
        refuse_without_tools(parts.agent, parts.world)
    measures = MeasureSet.of(
        parts.measures, environment.weights, seconds=spec.settings.measure_seconds
    )
    parts.suite.require(Split.TRAINING)
    if (held_out := parts.suite.size(Split.HELD_OUT)) < parts.suite.minimum:
        message = (
            f"there are {held_out} held-out cases, and a proof needs {parts.suite.minimum}: "
            "this training cannot be proved"
        )
        report_event(folder, "note", message=message)
    check(spec.settings, parts.suite.size(Split.TRAINING), world_size)
    return TrainWork(
        agent=parts.agent,
        suite=parts.suite,
        measures=measures,
        settings=spec.settings,
        loaded=load(
            spec.policy,
            spec.settings,
            agent_model=parts.agent.model,
            declared=environment.family,
        ),
        context=parts.world,
        user=parts.user,
        code_digest=spec.code_digest,
    )
