"""What Python's entry points share: opening runs, showing progress, explaining invalid settings."""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from sparring.contracts.errors import InvalidInput, RunChanged, SettingError
from sparring.contracts.kinds import run_kind
from sparring.contracts.specs import (
    EndpointSpec,
    Frozen,
    PlaySettings,
    PolicySpec,
    RunSpec,
    Table,
    agent_of_target,
    python_target,
)
from sparring.contracts.summaries import Summary
from sparring.contracts.training import TrainSettings
from sparring.environments.task import Task
from sparring.jobs.run_job import Attempt, Ended, JobMaker, run_job
from sparring.jobs.worker import Heartbeat
from sparring.learning.engine import engine_named
from sparring.player.sdk_run import RUNNER_ARGUMENTS
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json_or_empty
from sparring.run_folder.layout import is_plain_name, new_run_id

Kind = TypeVar("Kind", bound=Summary)
Spec = TypeVar("Spec", bound=RunSpec)
_ACCEPTABLE_CHANGES = ("code_digest", "processes")
_SECONDS_PER_LOOK = 0.5


def open_run(
    runs: Path, run: str | None, spec: RunSpec, *, accept_changes: bool = False
) -> RunFolder:
    """Return the folder of the run named `run`, and create the run if it does not exist.

    Without `run`, the new run gets an id made from its environment's or agent's name. Raises
    RunChanged if an existing run has another spec; `accept_changes` permits changed code and
    another number of processes.
    """
    if run is not None and not is_plain_name(run):
        raise InvalidInput(f"a run cannot be called {run!r}; use letters, digits, - _ and .")
    name = run_kind(spec.kind, "spec").id_prefix + (
        spec.environment or agent_of_target(spec.target)
    )
    folder = RunFolder(runs / (run or new_run_id(name, time.time(), secrets.token_hex(2))))
    now = spec.model_dump(mode="json")
    if not folder.path.is_dir():
        folder.create(now)
        return folder
    as_read = folder.read_spec()
    if as_read.get("kind") != now["kind"]:
        raise InvalidInput(
            f"run {folder.id} is of kind {as_read.get('kind')!r}, not {now['kind']!r}; use another "
            "name"
        )
    before = type(spec).model_validate(as_read).model_dump(mode="json")
    changed = [field for field in now if now[field] != before[field]]
    if accept_changes:
        changed = [field for field in changed if field not in _ACCEPTABLE_CHANGES]
    if changed:
        listed = "; ".join(_difference(field, before[field], now[field]) for field in changed)
        is_acceptable = set(changed) <= set(_ACCEPTABLE_CHANGES)
        remedy = "pass accept_changes=True, or " if is_acceptable else ""
        raise RunChanged(
            f"run {folder.id} was started with other settings ({listed}); resuming it would mix "
            f"their results; {remedy}start a new run under another name"
        )
    return folder


def spec_of(kind: type[Spec], fields: Mapping[str, Any]) -> Spec:
    """Return the spec of a run. Raises InvalidInput with the names of the wrong fields."""
    try:
        return kind(**fields)
    except ValidationError as error:
        raise InvalidInput(explain_validation_error(error, kind)) from error


def fields_of(task: Task) -> dict[str, Any]:
    """Return the fields of a run's spec that its task gives."""
    return {
        "target": python_target(task.agent.name),
        "environment": task.environment,
        "measures": dict(task.measures.weights),
        "code_digest": task.digest,
    }


def policy_named(model: str | None, settings: PlaySettings) -> PolicySpec:
    """Return the model of that name, or the agent's, as the settings have it think. `MODEL@URL`
    names a model behind an OpenAI-compatible server."""
    thinking: Table = {
        "thinking": settings.thinking,
        "history_thinking": settings.history_thinking,
    }
    name, is_served, address = (model or "").partition("@http")
    if not is_served:
        return PolicySpec(model=model, **thinking)
    try:
        server = EndpointSpec(base_url=f"http{address}", model=name)
    except ValidationError as error:
        raise InvalidInput(error.errors()[0]["msg"].removeprefix("Value error, ")) from error
    return PolicySpec(kind="endpoint", model=name, endpoints=(server,), **thinking)


def train_settings(given: Mapping[str, Any]) -> TrainSettings:
    """Return the settings of a training. Raises SettingError with the names of the wrong ones."""
    engine_named().refuse_unknown(given)
    try:
        return TrainSettings(**given)
    except ValidationError as error:
        raise SettingError(explain_validation_error(error, TrainSettings)) from error


def run_here(
    folder: RunFolder,
    task: Task | None,
    doing: str,
    *,
    make: JobMaker[Kind] | None = None,
    accept_changes: bool = False,
    show_progress: bool = True,
) -> Ended[Kind]:
    """Run the job of a run in the calling process, and show its progress. Without `task`, the
    environment that the spec names is opened."""
    attempt = attempt_here(folder, accept_changes=accept_changes)
    with _shown_progress(folder, doing, is_wanted=show_progress):
        return run_job(attempt, task, make)


@contextmanager
def _shown_progress(folder: RunFolder, doing: str, *, is_wanted: bool) -> Iterator[None]:
    """Show the progress that the run's job writes, within the context."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_SECONDS_PER_LOOK):
            beat = read_json_or_empty(folder.heartbeat)
            note = beat.get("doing") or f"{beat.get('passed', 0)} fully passed"
            bar.update(shown, total=beat.get("total"), completed=beat.get("rollouts", 0), note=note)

    with progress_bar(doing, TimeRemainingColumn(), is_wanted=is_wanted) as bar:
        shown = bar.add_task(doing, total=None, note="")
        follower = threading.Thread(target=follow, name="sparring-progress", daemon=True)
        if not bar.disable:
            follower.start()
        try:
            yield
        finally:
            ended.set()


def attempt_here(folder: RunFolder, rank: int = 0, *, accept_changes: bool = False) -> Attempt:
    """Return an attempt at a run in the calling process."""
    heartbeat = Heartbeat(folder, rank, None)
    return Attempt(folder, heartbeat, rank, accept_changes=accept_changes)


def progress_bar(doing: str, time_column: ProgressColumn, *, is_wanted: bool) -> Progress:
    """Return a bar on standard error, with a field `note`. It shows nothing unless it is wanted and
    this is a terminal or a notebook."""
    return Progress(
        TextColumn(doing),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        time_column,
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        disable=not (is_wanted and (sys.stderr.isatty() or "ipykernel" in sys.modules)),
    )


def _difference(field: str, before: Any, now: Any) -> str:
    """Describe a changed field; for a table of settings, only its changed keys."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{field}.{key}: {before.get(key)} → {now.get(key)}" for key in keys)
    return f"{field}: {before} → {now}"


def explain_validation_error(error: ValidationError, settings: type[Frozen]) -> str:
    """Format a validation error as `field: problem; …`."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: "
        + (
            _unknown_setting(problem["loc"], settings)
            if problem["type"] == "extra_forbidden"
            else problem["msg"].removeprefix("Value error, ")
        )
        for problem in error.errors()
    )


def _unknown_setting(place: tuple[int | str, ...], settings: type[Frozen]) -> str:
    name = str(place[-1])
    if name in RUNNER_ARGUMENTS:
        return RUNNER_ARGUMENTS[name]
    return f"no such setting; there are {_settings_beside(place, settings)}"


def _settings_beside(place: tuple[int | str, ...], settings: type[Frozen]) -> str:
    """Return the valid setting names of the table that contains `place`."""
    table: type[BaseModel] = settings
    for name in place[:-1]:
        field = table.model_fields.get(str(name))
        types = [] if field is None else [field.annotation, *get_args(field.annotation)]
        models = [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]
        table = models[0] if models else table
    return ", ".join(table.model_fields)
