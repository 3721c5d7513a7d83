"""`sparring train`: start, follow, show."""

from __future__ import annotations

from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.contracts.progress import NewLines, in_words
from sparring.operations.evaluating import RunQuery
from sparring.operations.operation import Caller
from sparring.operations.starting import Started
from sparring.operations.training import (
    ResumeTrain,
    StartTrain,
    join_train,
    resume_train,
    start_train,
    train_summary,
)
from sparring.settings.assignments import assigned
from sparring.surfaces.cli import following
from sparring.surfaces.cli.following import Beat, Kind, Shown
from sparring.surfaces.cli.tables import show_training


def settings_from(given: dict[str, Any], assignments: list[str]) -> dict[str, Any]:
    """Options that were given, and `--set NAME=VALUE`, where `a.b=c` goes into a table."""
    return assigned(
        assignments, {name: value for name, value in given.items() if value is not None}
    )


def refuse_settings_beside(option: str, given: dict[str, Any], assignments: list[str]) -> None:
    """A run goes on as it was started; a setting that would be ignored is refused."""
    named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    named += ["--set"] if assignments else []
    if named:
        raise InvalidInput(
            f"{option} goes on with the settings that the run was started with; leave out "
            f"{', '.join(named)}, or start a new run"
        )


def start(request: dict[str, Any], caller: Caller) -> Started:
    if request["target"] is None:
        raise InvalidInput(
            "say what to train: sparring train NAME (see `sparring env list`), or --resume RUN"
        )
    return start_train(StartTrain.model_validate(request), caller)


def resume(run: str, accept_changes: bool, caller: Caller) -> Started:
    return resume_train(ResumeTrain(run=run, accept_changes=accept_changes), caller)


def join(run: str, caller: Caller) -> Started:
    return join_train(RunQuery(run=run), caller)


def follow(started: Started, caller: Caller, *, as_json: bool) -> None:
    """Wait for the run; Ctrl-C stops it after the step, with a checkpoint."""
    kind = Kind(
        stopping="stopping after this step, with a checkpoint…",
        shown=_shown,
        lines=NewLines(),
        summary=train_summary,
        show=show_training,
        way_on=_way_on,
    )
    following.follow(started, caller, kind, as_json=as_json)


def _shown(beat: Beat) -> Shown:
    left = beat.get("seconds_left")
    news = f"{beat['tokens_drawn']:,} tokens sampled"
    news += "" if left is None else f" · {in_words(left)} left"
    return Shown("training", beat["step"], beat["steps"], news)


def _way_on(beat: Beat, run: str) -> str:
    if not beat.get("step"):
        return ""
    return f"`sparring train --resume {run}` goes on from its newest checkpoint"
