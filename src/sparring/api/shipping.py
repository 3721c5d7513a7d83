"""`result.ship(…)`: ships a training run in the calling process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.api.python_runs import open_run
from sparring.api.tasks import Task
from sparring.contracts.cases import Case
from sparring.contracts.errors import FaultyArtefact, InvalidInput
from sparring.contracts.ship_specs import QUANTIZATIONS, Form, ShipSpec
from sparring.contracts.specs import PlaySettings
from sparring.contracts.training import TrainSpec
from sparring.environments import Environment, load_environment
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.report import try_to_write_report
from sparring.jobs.run_lock import hold_run, report_event
from sparring.jobs.ship.shipment import Shipment
from sparring.player.external_agent import PlayedAgent
from sparring.player.player import as_case_factory
from sparring.run_folder import RunFolder
from sparring.suites import Suite


@dataclass(frozen=True, slots=True)
class ShipResult:
    """The result of a shipment. `summary` is the object that `sparring ship --json` prints."""

    folder: Path
    summary: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """`equal`, `worse`, `cannot tell`, or `checked` if the artefact played no case."""
        return str(self.summary["verdict"])

    def __str__(self) -> str:
        return f"{self.verdict}: {self.summary['sentence']}\n{self.folder}"


def ship_training(
    training: RunFolder, to: Path, task: Task | None, options: Mapping[str, Any]
) -> ShipResult:
    """Ship the best checkpoint of a training run in this process, without a proof; `sparring ship`
    includes one. Raises FaultyArtefact if an artefact differs from the checkpoint."""
    spec = TrainSpec.model_validate(training.read_spec())
    environment = _environment(spec, task)
    fields = PlaySettings.model_fields
    play = PlaySettings(**{name: getattr(spec.settings, name) for name in fields})
    shipment = ShipSpec(
        target=spec.target,
        environment=spec.environment or (task.agent.name if task else ""),
        config=spec.config,
        policy=spec.policy,
        base=spec.policy,
        play=play.model_copy(update={"num_generations": 1}),
        run=training.id,
        to=str(to.expanduser().resolve()),
        **options,
    )
    folder = open_run(training.path.parent, None, shipment, f"ship-{shipment.environment}")
    with hold_run(folder):
        report_event(folder, "started", pid=os.getpid(), host=socket.gethostname())
        try:
            heartbeat = Heartbeat(folder, 0, None)
            summary = Shipment(folder, shipment, environment, heartbeat).run()
        except (KeyboardInterrupt, asyncio.CancelledError):
            report_event(folder, "stopped")
            raise
        except Exception as error:
            report_event(folder, "failed", kind=type(error).__name__, message=str(error))
            raise
        try_to_write_report(folder)
        report_event(folder, "completed")
    if summary["verdict"] == "refused":
        raise FaultyArtefact(summary["problem"])
    return ShipResult(Path(summary["to"]), summary)


def forms_from(names: Sequence[str]) -> tuple[Form, ...]:
    """Return the forms with these names. Raises InvalidInput for an unknown name."""
    if unknown := [each for each in names if each not in list(Form)]:
        raise InvalidInput(f"unknown form {unknown[0]!r}; there are {', '.join(Form)}")
    return tuple(Form(name) for name in names)


def quantizations_from(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as a tuple. Raises InvalidInput for an unknown quantisation."""
    if unknown := [each for each in names if each not in QUANTIZATIONS]:
        raise InvalidInput(
            f"unknown quantisation {unknown[0]!r}; there are {', '.join(QUANTIZATIONS)}"
        )
    return tuple(names)


def _environment(spec: TrainSpec, task: Task | None) -> Environment:
    if not spec.is_from_python:
        environment = load_environment(spec.target, spec.config)
        environment.is_unsandboxed = spec.settings.unsandboxed
        return environment
    if task is None:
        raise InvalidInput(
            "this run was started from Python, and its suite and measures exist only there: pass "
            "suite=… and the other parts to ship(), as you did to train()"
        )
    return _GivenEnvironment(task) if task.user is None else _GivenWithUser(task)


class _GivenEnvironment(Environment):
    """An environment made from the parts of a task."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task = task
        self.measures = tuple(task.measures)
        self.weights = dict(task.weights or {})
        self.family = task.family
        self._make_world = as_case_factory(task.context)

    def agent(self) -> PlayedAgent:
        return self._task.agent

    def world(self, case: Case) -> Any:
        return self._make_world(case)

    def suite(self) -> Suite:
        return self._task.suite


class _GivenWithUser(_GivenEnvironment):
    """The same with a user: `read_parts` tests whether the class overrides `user`."""

    @property
    def user(self) -> Any:
        """The task's user function, sync or async."""
        return self._task.user
