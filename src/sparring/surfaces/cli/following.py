"""Following a run in the foreground: progress, Ctrl-C, and how it ended."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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

from sparring.contracts.errors import GuardStop, NotFinished, RunFailed
from sparring.contracts.progress import NewLines, in_words
from sparring.operations.operation import Caller
from sparring.operations.run_control import stop_run
from sparring.operations.run_views import ListRuns, ResultsQuery, RunQuery, Status
from sparring.operations.runs import list_runs, run_results, run_status
from sparring.operations.starting import Started
from sparring.runs.lifecycle import RunState
from sparring.surfaces.cli.proof_tables import show_audit, show_check, show_proof
from sparring.surfaces.cli.tables import printable, show_summary, show_training

Beat = dict[str, Any]
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Shown:
    """What a heartbeat says on the bar."""

    done: int
    total: int
    news: str


@dataclass(frozen=True, slots=True)
class Kind:
    """How runs of one kind show themselves. `lines` gives what is new enough to stay."""

    stopping: str
    shown: Callable[[Beat], Shown]
    show: Callable[[dict[str, Any], Console], None]
    way_on: Callable[[Beat, str], str]
    lines: Callable[[], Callable[[Beat], list[str]]] = lambda: lambda _: []


def begin(started: Started, caller: Caller, *, detach: bool, as_json: bool) -> None:
    """Leave a run that was started to itself, or follow it."""
    if beside := _running_beside(started, caller):
        print(f"it shares this machine with {', '.join(beside)}", file=sys.stderr)
    if not detach:
        follow(started.run, caller, as_json=as_json, proof=started.proof)
        return
    print(started.model_dump_json() if as_json else started.run)
    if not started.is_new:
        print(f"it is {started.state.value} already", file=sys.stderr)
    elif started.message:
        print(started.message, file=sys.stderr)
    if started.proof:
        print(f"its proof follows: {started.proof}", file=sys.stderr)


def _running_beside(started: Started, caller: Caller) -> list[str]:
    """Other runs that are at work: the same command, given twice, is easily overlooked."""
    states = (RunState.STARTING, RunState.RUNNING)
    page = list_runs(ListRuns(states=states, count=3), caller)
    return [each.run for each in page.runs if each.run not in (started.run, started.proof)]


def follow(
    run: str, caller: Caller, *, as_json: bool, only_looks: bool = False, proof: str = ""
) -> None:
    """Wait for a run, with progress on a terminal; then show what came of it, and what its proof
    says. Ctrl-C without a terminal to ask ends the run that this command started, and not one
    that it only looks at."""
    console = Console(stderr=True)
    console.print(Text.assemble("run ", (run, "bold")), soft_wrap=True)
    query = RunQuery(run=run)
    status = _wait_or_ask(query, caller, console, otherwise="leave" if only_looks else "stop")
    if status is None:
        told = f"it goes on by itself; `sparring run watch {run}` looks at it again"
        raise NotFinished(told)
    if status.state is not RunState.COMPLETED:
        _give_up(status)
    summary = run_results(ResultsQuery(run=run), caller).summary
    if not as_json:
        KINDS[status.kind].show(summary, Console())
    proved = _proof(proof, caller, console) if proof else None
    if as_json:
        print(json.dumps({**summary, "proof": proved} if proof else summary))
    elif proved:
        show_proof(proved, Console())


def _proof(run: str, caller: Caller, console: Console) -> dict[str, Any] | None:
    """What the proof of a training says. A proof that fails does not undo the training."""
    console.print(Text.assemble("proof ", (run, "bold")), soft_wrap=True)
    status = _wait_or_ask(RunQuery(run=run), caller, console, otherwise="leave")
    if status is None:
        return None
    if status.state is not RunState.COMPLETED:
        told = printable(status.message or "it ended without a word")
        console.print(Text(f"no proof: {told}", style="yellow"), soft_wrap=True)
        return None
    return run_results(ResultsQuery(run=run), caller).summary


def _wait_or_ask(
    query: RunQuery, caller: Caller, console: Console, otherwise: str
) -> Status | None:
    """How the run ended; None where the person leaves it running."""
    lines = KINDS[run_status(query, caller).kind].lines()
    while True:
        try:
            return _wait(query, caller, console, lines)
        except KeyboardInterrupt:
            choice = _choice(console) if sys.stdin.isatty() else otherwise
        if choice == "leave":
            return None
        if choice == "stop":
            kind = KINDS[run_status(query, caller).kind]
            console.print(kind.stopping)
            stop_run(query, caller)
            return _wait(query, caller, console, lines)


def _choice(console: Console) -> str:
    """What Ctrl-C means."""
    question = "\nstop it (s), leave it running (l), or go on watching (Enter)? "
    try:
        console.print(question, end="")
        answer = input().strip().lower()
    except (KeyboardInterrupt, EOFError):
        console.print()
        return "leave"  # whoever is in a hurry loses nothing
    return {"s": "stop", "l": "leave"}.get(answer[:1], "watch")


def _wait(
    query: RunQuery, caller: Caller, console: Console, lines: Callable[[Beat], list[str]]
) -> Status:
    kind, shown_state, said = KINDS[run_status(query, caller).kind], None, ""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[news]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("queued", total=None, news="")
        while True:
            status = run_status(query, caller)
            if status.state is not shown_state:
                shown_state = status.state
                if status.state is RunState.STARTING and status.last_restart:
                    told = f"starting again: {printable(status.last_restart)}"
                    console.print(told, soft_wrap=True, highlight=False, markup=False)
            if (doing := _doing(status)) != said and not console.is_terminal:
                console.print(doing, soft_wrap=True, highlight=False, markup=False)
            said = doing
            bar.update(task, description=doing)
            if (beat := status.progress) and status.state is not RunState.QUEUED:
                seen = kind.shown(beat)
                total, done = seen.total, seen.done
                bar.update(task, total=total, completed=done, news=seen.news)
                for line in lines(beat):
                    console.print(line, soft_wrap=True, highlight=False, markup=False)
            if status.state.has_ended:
                return status
            time.sleep(_LOOK_SECONDS)


IN_WORDS = {
    "starting": "starting its process",
    "loading": "loading libraries and the model",
    "scoring": "computing advantages",
    "updating": "updating the weights",
    "validating": "playing validation cases",
    "saving": "saving a checkpoint",
}


def _doing(status: Status) -> str:
    """What is being done, or waited for."""
    doing = IN_WORDS.get(status.doing, status.doing)
    match status.state:
        case RunState.QUEUED:
            return "queued"
        case RunState.STARTING:
            return doing or "starting"
        case RunState.STOPPING:
            return f"stopping, once this is done: {doing}" if doing else "stopping"
        case RunState.RUNNING:
            return doing or "running"
        case _:
            return status.state.value


def _give_up(status: Status) -> NoReturn:
    message = printable(status.message or "it ended without a word")
    goes_on = status.error != GuardStop.__name__  # it would come to the same end
    beat = status.progress or {}
    if goes_on and (way_on := KINDS[status.kind].way_on(beat, status.run)):
        message += f"\n{way_on}"
    kind = "Stopped" if status.state is RunState.STOPPED else status.error or "RunFailed"
    raise RunFailed(message, kind, status.exit_code or 100)


# ---------------------------------------------------------------------- kinds of runs


def _training(beat: Beat) -> Shown:
    left = beat.get("seconds_left")
    news = f"{beat['tokens_drawn']:,} tokens sampled"
    news += "" if left is None else f" · about {in_words(left)} left"
    return Shown(beat["step"], beat["steps"], news)


def _playing(beat: Beat) -> Shown:
    news = f"{beat['passed']} fully passed · {beat['sampled_tokens']:,} tokens"
    if (left := beat.get("seconds_left")) is not None:
        news += f" · about {in_words(left)} left to play"
    return Shown(beat["rollouts"], beat["total"], news)


def _training_goes_on(beat: Beat, run: str) -> str:
    if not beat.get("step"):
        return ""
    return f"`sparring run resume {run}` goes on from its newest checkpoint"


def _evaluation_goes_on(beat: Beat, run: str) -> str:
    if not beat.get("total") or beat["rollouts"] >= beat["total"]:
        return ""
    return (
        f"{beat['rollouts']} of {beat['total']} rollouts are kept: `sparring run resume {run}` "
        "goes on. (In-process weights are played in blocks of --in-flight rollouts, each kept when "
        "it is whole.)"
    )


def _played(show: Callable[[dict[str, Any], Console], None]) -> Kind:
    """A run that plays rollouts and learns nothing."""
    return Kind(
        stopping="stopping…",
        shown=_playing,
        show=show,
        way_on=_evaluation_goes_on,
    )


KINDS: Mapping[str, Kind] = {
    "train": Kind(
        stopping="stopping after this step, with a checkpoint…",
        shown=_training,
        show=show_training,
        way_on=_training_goes_on,
        lines=NewLines,
    ),
    "eval": _played(show_summary),
    "check": _played(show_check),
    "audit": _played(show_audit),
    "prove": _played(show_proof),
}
