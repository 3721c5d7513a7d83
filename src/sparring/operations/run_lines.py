"""Builds views of runs from their folders, without text that the caller may not see."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sparring.contracts.errors import CasesBroken
from sparring.contracts.json import Beat, JsonObject, MetricsRow
from sparring.operations.held_out import is_held_out
from sparring.operations.operation import Caller
from sparring.operations.rate_limits import seconds_between
from sparring.operations.run_views import ProcessLine, RunLine, ShownRun
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json_or_empty
from sparring.runs.history import History, read_history
from sparring.runs.index_rows import Row
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import ProcessIdentity
from sparring.runs.status import RunStatus, recent_rows, time_left, with_figures

NEWS = ("state", "warning", "checkpoint", "restart", "links", "parity", "stop_requested")


def line_of(row: Row, folder: RunFolder, caller: Caller) -> RunLine:
    """Return the line of a run in a list, also if its files cannot be read."""
    try:
        return _line(row, folder, caller)
    except (ValueError, TypeError, AttributeError) as error:
        message = f"its figures cannot be read: {type(error).__name__}"
        return RunLine(
            run=row.id,
            kind=row.kind,
            environment=row.environment,
            model=row.model,
            state=row.state,
            author=row.history.author,
            created=row.history.created,
            minutes=0.0,
            message=message,
        )


def message_of(history: History, caller: Caller, folder: RunFolder) -> str:
    """Return the message of a run's state. The message of a stopped run is never hidden."""
    if history.state is RunState.STOPPED:
        return history.message
    return message_for(caller, folder, history.message, history.error)


def message_for(caller: Caller, folder: RunFolder, message: str, error: str = "") -> str:
    """Return the message, or for operators a placeholder if it may quote held-out cases.

    `error` is the class name of the error that the message describes.
    """
    if not message or caller.is_owner:
        return message
    if error == CasesBroken.__name__:
        return f"{message.splitlines()[0].rstrip(':')}; only the owner may see the details"
    hidden = "(only the owner may see messages about held-out cases)"
    return hidden if is_held_out(folder) else message


def visible_events(
    caller: Caller, folder: RunFolder, events: Iterable[JsonObject]
) -> tuple[JsonObject, ...]:
    """Return the events that the caller may see. Operators see only news, without messages that may
    quote a held-out case."""
    chosen = [each for each in events if caller.is_owner or each.get("event") in NEWS]
    return tuple(_visible_event(caller, folder, each) for each in chosen)


def _visible_event(caller: Caller, folder: RunFolder, event: JsonObject) -> JsonObject:
    message = str(event.get("message") or "")
    if event.get("event") == "state" and event.get("state") == RunState.STOPPED:
        return event
    error = str(event.get("error") or event.get("kind") or "")
    return {**event, "message": message_for(caller, folder, message, error)} if message else event


def _line(row: Row, folder: RunFolder, caller: Caller) -> RunLine:
    status = with_figures(folder, row.history)
    heartbeat = status.progress or {}
    metrics = heartbeat.get("metrics") or {}
    return RunLine(
        run=row.id,
        kind=row.kind,
        environment=row.environment,
        model=Path(row.model).name if "/" in row.model else row.model,
        state=status.state,
        author=row.history.author,
        created=row.history.created,
        minutes=round(status.seconds / 60, 2),
        step=heartbeat.get("step", heartbeat.get("rollouts")),
        steps=heartbeat.get("steps", heartbeat.get("total")),
        reward=metrics.get("reward"),
        message=message_of(row.history, caller, folder),
    )


def shown_run(folder: RunFolder, status: RunStatus, caller: Caller) -> ShownRun:
    """Return the complete state of a run, as the caller may see it."""
    spec, history, heartbeat = folder.read_spec(), status.history, status.progress or {}
    rows = recent_rows(folder)
    metrics = heartbeat.get("metrics") or {}
    validated: MetricsRow = next((row for row in reversed(rows) if "validation/reward" in row), {})
    left = time_left(status, rows)
    message = message_of(history, caller, folder)
    if status.state is RunState.QUEUED and not message:
        message = waiting_for(folder, history)
    if status.is_elsewhere:
        host = status.supervisor.get("host", "another host")
        message = message or f"supervised on {host}; control it from there"
    return ShownRun(
        run=folder.id,
        kind=str(spec.get("kind")),
        environment=str(spec.get("environment") or spec.get("target")),
        model=str((spec.get("policy") or {}).get("model") or history.model),
        folder=str(folder.path),
        state=status.state,
        cause=history.cause,
        message=message,
        error=history.error,
        exit_code=history.exit_code,
        author=history.author,
        minutes=round(status.seconds / 60, 2),
        attempts=max(history.attempt.number, folder.attempts()),
        restarts=history.restarts,
        last_restart=message_for(caller, folder, history.restart_message),
        is_stopping_for=history.stop.author if history.stop and not status.state.has_ended else "",
        processes=tuple(_processes(status)),
        step=heartbeat.get("step", heartbeat.get("rollouts")),
        steps=heartbeat.get("steps", heartbeat.get("total")),
        doing=""
        if status.state.has_ended
        else str(read_json_or_empty(folder.rank_heartbeat(0)).get("doing", "")),
        loss=metrics.get("loss"),
        reward=metrics.get("reward"),
        pass_rates=_rates(metrics, "pass_rate/"),
        validation_reward=validated.get("validation/reward"),
        validation_pass_rates=_rates(validated, "validation/pass_rate/"),
        seconds_left=left.seconds if left else None,
        estimate_basis=left.basis if left else "",
        links=dict(history.links),
        warning=message_for(caller, folder, history.warning),
        proof=_proof_of(folder),
        progress=visible_progress(folder, status, caller),
        next_check_seconds=seconds_between(status),
    )


def visible_progress(folder: RunFolder, status: RunStatus, caller: Caller) -> JsonObject | None:
    """Return the progress of a run. Operators do not see interim results on held-out cases: that
    would count as a look at the cases."""
    if not status.progress:
        return None
    is_hidden = not caller.is_owner and is_held_out(folder)
    return {
        name: value
        for name, value in status.progress.items()
        if not (is_hidden and name in ("passed", "reward", "metrics"))
    }


def waiting_for(folder: RunFolder, history: History) -> str:
    """Return the reason why a queued run waits, as text."""
    from sparring.runs.index import Index  # importing SQLAlchemy is slow

    if name := str(folder.read_spec().get("after") or ""):
        predecessor = RunFolder(folder.path.parent / name)
        if not predecessor.spec.is_file():
            return f"waiting for {name}, which no longer exists"
        state = read_history(predecessor).history.state
        if state is not RunState.COMPLETED:
            return f"waiting for {name}, which is {state.value}"
    most = history.runs_at_once
    index = Index(folder.path.parent)
    index.refresh()
    active = index.active()
    running = sum(row.state is not RunState.QUEUED for row in active)
    if most is None or running < most:
        return "about to start"
    waiting = [
        row.id
        for row in active
        if row.state is RunState.QUEUED and not _follows(RunFolder(folder.path.parent / row.id))
    ]
    before = waiting.index(folder.id) if folder.id in waiting else 0
    others = f", and {before} wait before it" if before else ""
    return f"waiting for its turn: {running} of at most {most} runs are running{others}"


def _proof_of(folder: RunFolder) -> str:
    proof = RunFolder(folder.path.parent / f"proof-{folder.id}")
    return proof.id if proof.spec.is_file() else ""


def _follows(folder: RunFolder) -> bool:
    """Return whether a run starts after another run."""
    return bool(folder.spec.is_file() and folder.read_spec().get("after"))


def _processes(status: RunStatus) -> list[ProcessLine]:
    """Return the supervisor and the processes that it reports."""
    supervisor = status.supervisor
    if not supervisor:
        return []
    has_ended = status.state.has_ended
    own = {"name": "supervisor", "state": "done" if has_ended else "running", "log": ""}
    return [_process({**supervisor, **own}), *map(_process, supervisor.get("processes", ()))]


def _process(row: Beat) -> ProcessLine:
    """Return a process with its last reported state, or `gone` if it has died since."""
    identity = ProcessIdentity.from_dict(row)
    state = str(row["state"])
    is_gone = identity is not None and identity.is_of_this_host and not identity.is_alive
    return ProcessLine(
        name=str(row["name"]),
        state="gone" if state == "running" and is_gone else state,
        pid=int(row["pid"]),
        host=str(row["host"]),
        log=str(row["log"]),
    )


def _rates(row: MetricsRow, prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): float(value)
        for name, value in row.items()
        if name.startswith(prefix) and value is not None
    }
