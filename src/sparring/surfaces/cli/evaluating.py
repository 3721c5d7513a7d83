"""`sparring eval`: start, follow, show."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from sparring.contracts.errors import InvalidInput, RunFailed
from sparring.operations.evaluating import (
    ResumeEval,
    RunQuery,
    StartEval,
    Status,
    eval_summary,
    resume_eval,
    run_status,
    start_eval,
    stop_run,
)
from sparring.operations.operation import Caller, Role
from sparring.operations.starting import Started
from sparring.runs.local import RunState, has_ended
from sparring.surfaces.cli.tables import show_summary


def owner(runs: str) -> Caller:
    """A person at the command line owns the project."""
    return Caller(Role.OWNER, Path(runs))


def policy_options(
    model: str | None,
    endpoints: list[str] | None,
    vllm: str | None,
    key_variable: str,
    family: str | None,
) -> dict[str, Any]:
    urls = [vllm] if vllm else endpoints or []
    if not urls:
        return {"model": model, "family": family}
    if model is None:
        raise InvalidInput("a server needs to know which model to play: pass --model NAME as well")
    servers = [{"base_url": url, "model": model, "key_variable": key_variable} for url in urls]
    kind = "vllm" if vllm else "endpoint"
    return {"kind": kind, "model": model, "endpoints": servers, "family": family}


def start(request: dict[str, Any], caller: Caller) -> Started:
    if request["target"] is None:
        raise InvalidInput("say what to play: sparring eval FILE:NAME, or --resume RUN")
    return start_eval(StartEval.model_validate(request), caller)


def resume(run: str, accept_changes: bool, caller: Caller) -> Started:
    return resume_eval(ResumeEval(run=run, accept_changes=accept_changes), caller)


def follow(started: Started, caller: Caller, *, as_json: bool) -> None:
    """Wait for the run with progress on a terminal; Ctrl-C stops it in good order."""
    console = Console(stderr=True)
    console.print(Text.assemble("run ", (started.run, "bold")), soft_wrap=True)
    query = RunQuery(run=started.run)
    try:
        status = _wait(query, caller, started.pid, console)
    except KeyboardInterrupt:
        console.print("stopping…")
        stop_run(query, caller)
        status = _wait(query, caller, started.pid, console)
    if status.state is not RunState.COMPLETED:
        _give_up(status, started)
    summary = eval_summary(query, caller).summary
    if as_json:
        print(json.dumps(summary))
    else:
        show_summary(summary, Console())


def _wait(query: RunQuery, caller: Caller, pid: int | None, console: Console) -> Status:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[news]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading", total=None, news="")
        while True:
            ended = pid is not None and has_ended(pid)
            status = run_status(query, caller)
            ended = ended or status.state not in (RunState.STARTING, RunState.RUNNING)
            if beat := status.progress:
                bar.update(
                    task,
                    description="playing",
                    total=beat["total"],
                    completed=beat["rollouts"],
                    news=f"{beat['passed']} fully passed · {beat['sampled_tokens']:,} tokens",
                )
            if ended:
                return status
            time.sleep(0.2)


def _give_up(status: Status, started: Started) -> NoReturn:
    beat = status.progress or {}
    played, total = beat.get("rollouts", 0), beat.get("total", 0)
    message = status.message or f"the worker ended without a word; see {started.log}"
    if total:
        message += (
            f"\n{played} of {total} rollouts are kept: `sparring eval --resume {started.run}` goes "
            "on. (In-process weights are played in blocks of --in-flight rollouts, each kept when "
            "it is whole.)"
        )
    raise RunFailed(message, status.kind or "RunFailed", status.exit_code or 100)
