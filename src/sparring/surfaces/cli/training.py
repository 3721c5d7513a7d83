"""`sparring train`: start, follow, show."""

from __future__ import annotations

import json
import time
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from sparring.contracts.errors import InvalidInput, RunFailed
from sparring.contracts.progress import headline, in_words
from sparring.operations.evaluating import RunQuery, Status, run_status, stop_run
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
from sparring.runs.local import RunState, has_ended
from sparring.surfaces.cli.tables import show_training


def settings_from(given: dict[str, Any], assignments: list[str]) -> dict[str, Any]:
    """Options that were given, and `--set NAME=VALUE`, where `a.b=c` goes into a table."""
    settings = {name: value for name, value in given.items() if value is not None}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InvalidInput(f"--set wants NAME=VALUE, as in lora.r=8; got {assignment!r}")
        table, dot, key = name.strip().partition(".")
        if dot:
            settings[table] = {**_table(settings.get(table)), key: _value(text)}
        else:
            settings[table] = _value(text)
    return settings


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
        raise InvalidInput("say what to train: sparring train FILE:NAME, or --resume RUN")
    return start_train(StartTrain.model_validate(request), caller)


def resume(run: str, accept_changes: bool, caller: Caller) -> Started:
    return resume_train(ResumeTrain(run=run, accept_changes=accept_changes), caller)


def join(run: str, caller: Caller) -> Started:
    return join_train(RunQuery(run=run), caller)


def follow(started: Started, caller: Caller, *, as_json: bool) -> None:
    """Wait for the run, with progress; Ctrl-C stops it after the step, with a checkpoint."""
    console = Console(stderr=True)
    console.print(Text.assemble("run ", (started.run, "bold")), soft_wrap=True)
    query = RunQuery(run=started.run)
    try:
        status = _wait(query, caller, started.pid, console)
    except KeyboardInterrupt:
        console.print("stopping after this step, with a checkpoint…")
        stop_run(query, caller)
        status = _wait(query, caller, started.pid, console)
    if status.state is not RunState.COMPLETED:
        _give_up(status, started)
    summary = train_summary(query, caller).summary
    if as_json:
        print(json.dumps(summary))
    else:
        show_training(summary, Console())


def _wait(query: RunQuery, caller: Caller, pid: int | None, console: Console) -> Status:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[news]}"),
    )
    shown = -1
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading", total=None, news="")
        while True:
            gone = pid is not None and has_ended(pid)
            status = run_status(query, caller)
            if (beat := status.progress) and "steps" in beat:
                left = beat.get("seconds_left")
                news = f"{beat['tokens_drawn']:,} tokens sampled"
                news += "" if left is None else f" · {in_words(left)} left"
                bar.update(
                    task,
                    description="training",
                    total=beat["steps"],
                    completed=beat["step"],
                    news=news,
                )
                lines = beat["said"] if shown < 0 else []
                if beat["step"] > shown and beat["metrics"]:
                    lines = [*lines, f"step {beat['step']}/{beat['steps']} · {headline(beat)}"]
                for line in lines:
                    console.print(line, soft_wrap=True, highlight=False)
                shown = beat["step"]
            if gone or status.state not in (RunState.STARTING, RunState.RUNNING):
                return status
            time.sleep(0.2)


def _give_up(status: Status, started: Started) -> NoReturn:
    beat = status.progress or {}
    message = status.message or f"the worker ended without a word; see {started.log}"
    if beat.get("step"):
        message += f"\n`sparring train --resume {started.run}` goes on from its newest checkpoint"
    raise RunFailed(message, status.kind or "RunFailed", status.exit_code or 100)


def _table(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
