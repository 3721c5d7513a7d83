"""How a run's folder becomes an answer, for whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import CasesBroken
from sparring.operations.operation import Caller
from sparring.operations.patience import seconds_between
from sparring.operations.run_views import ProcessLine, RunLine, ShownRun
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_told
from sparring.runs.history import History, read_history
from sparring.runs.index import Index, Row
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import Identity
from sparring.runs.status import RunStatus, recent_rows, time_left, with_figures


def line_of(row: Row, folder: RunFolder, caller: Caller) -> RunLine:
    """A line for each run, also for one whose files somebody has spoilt."""
    try:
        return _line(row, folder, caller)
    except (ValueError, TypeError, AttributeError) as error:
        told = f"its figures cannot be read: {type(error).__name__}"
        return RunLine(
            run=row.id,
            kind=row.kind,
            environment=row.environment,
            model=row.model,
            state=row.state,
            author=row.history.author,
            created=row.history.created,
            minutes=0.0,
            message=told,
        )


def words_for(caller: Caller, folder: RunFolder, words: str, error: str = "") -> str:
    """What a run says in its own words may quote its cases; of held-out ones, that is for the
    owner. `error` is the kind of error that it speaks of."""
    if not words or caller.is_owner or words.startswith("stopped by "):
        return words
    if error == CasesBroken.__name__:
        return f"{words.splitlines()[0].rstrip(':')}; what was said there is for the owner"
    is_held_out = folder.read_spec().get("split") == Split.HELD_OUT
    return "(what is said over held-out cases is for the owner)" if is_held_out else words


def _line(row: Row, folder: RunFolder, caller: Caller) -> RunLine:
    status = with_figures(folder, row.history)
    beat = status.progress or {}
    metrics = beat.get("metrics") or {}
    return RunLine(
        run=row.id,
        kind=row.kind,
        environment=row.environment,
        model=Path(row.model).name if "/" in row.model else row.model,
        state=status.state,
        author=row.history.author,
        created=row.history.created,
        minutes=round(status.seconds / 60, 2),
        step=beat.get("step", beat.get("rollouts")),
        steps=beat.get("steps", beat.get("total")),
        reward=metrics.get("reward"),
        message=words_for(caller, folder, row.history.message, row.history.error),
    )


def shown_run(folder: RunFolder, status: RunStatus, caller: Caller) -> ShownRun:
    spec, history, beat = folder.read_spec(), status.history, status.progress or {}
    rows = recent_rows(folder)
    metrics = beat.get("metrics") or {}
    validated: dict[str, Any] = next(
        (row for row in reversed(rows) if "validation/reward" in row), {}
    )
    left = time_left(status, rows)
    message = words_for(caller, folder, history.message, history.error)
    if status.state is RunState.QUEUED and not message:
        message = waiting_for(folder, history)
    if status.is_elsewhere:
        host = status.supervisor.get("host", "another host")
        message = message or f"it is supervised on {host}; commands there look after it"
    return ShownRun(
        run=folder.id,
        kind=str(spec.get("kind")),
        environment=str(spec.get("environment") or spec.get("target")),
        model=str((spec.get("policy") or {}).get("model") or ""),
        folder=str(folder.path),
        state=status.state,
        cause=history.cause,
        message=message,
        error=history.error,
        exit_code=history.exit_code,
        author=history.author,
        minutes=round(status.seconds / 60, 2),
        attempts=max(history.attempt, folder.attempts()),
        restarts=history.restarts,
        last_restart=words_for(caller, folder, history.restart_message),
        is_stopping_for=history.stop_author if not status.state.has_ended else "",
        processes=tuple(_processes(status)),
        step=beat.get("step", beat.get("rollouts")),
        steps=beat.get("steps", beat.get("total")),
        doing="" if status.state.has_ended else str(read_told(folder.pulse(0)).get("doing", "")),
        loss=metrics.get("loss"),
        reward=metrics.get("reward"),
        pass_rates=_rates(metrics, "pass_rate/"),
        validation_reward=validated.get("validation/reward"),
        validation_pass_rates=_rates(validated, "validation/pass_rate/"),
        seconds_left=left.seconds if left else None,
        estimate_basis=left.basis if left else "",
        links=dict(history.links),
        warning=words_for(caller, folder, history.warning),
        proof=_proof_of(folder),
        progress=dict(status.progress) if status.progress else None,
        next_check_seconds=seconds_between(status),
    )


def waiting_for(folder: RunFolder, history: History) -> str:
    """What keeps a run waiting."""
    if other := str(folder.read_spec().get("after") or ""):
        forerunner = RunFolder(folder.path.parent / other)
        if not forerunner.spec.is_file():
            return f"it waits for {other}, which is gone"
        state = read_history(forerunner).history.state
        if state is not RunState.COMPLETED:
            return f"it waits for {other}, which is {state.value}"
    most = history.runs_at_once
    active = Index(folder.path.parent).active()
    begun = sum(row.state is not RunState.QUEUED for row in active)
    if most is None or begun < most:
        return "it is about to start"
    waiting = [
        row.id
        for row in active
        if row.state is RunState.QUEUED and not _follows(RunFolder(folder.path.parent / row.id))
    ]
    before = waiting.index(folder.id) if folder.id in waiting else 0
    others = f", and {before} wait before it" if before else ""
    return f"it waits for its turn: {begun} of at most {most} runs are on{others}"


def _proof_of(folder: RunFolder) -> str:
    proof = RunFolder(folder.path.parent / f"proof-{folder.id}")
    return proof.id if proof.spec.is_file() else ""


def _follows(folder: RunFolder) -> bool:
    """Whether a run waits for another, not for its turn."""
    return bool(folder.spec.is_file() and folder.read_spec().get("after"))


def _processes(status: RunStatus) -> list[ProcessLine]:
    """The supervisor and the gang; of a run that has ended, how each process ended."""
    told = status.supervisor
    if not told:
        return []
    over = status.state.has_ended
    own = {"name": "supervisor", "state": "done" if over else "running", "log": ""}
    return [_process({**told, **own}), *map(_process, told.get("processes", ()))]


def _process(row: Mapping[str, Any]) -> ProcessLine:
    """As its supervisor told last; that it is gone can be newer."""
    identity = Identity.from_dict(row)
    state = str(row["state"])
    is_gone = identity is not None and identity.is_of_this_host and not identity.is_alive
    return ProcessLine(
        name=str(row["name"]),
        state="gone" if state == "running" and is_gone else state,
        pid=int(row["pid"]),
        host=str(row["host"]),
        log=str(row["log"]),
    )


def _rates(row: dict[str, Any], prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): float(value)
        for name, value in row.items()
        if name.startswith(prefix) and value is not None
    }
