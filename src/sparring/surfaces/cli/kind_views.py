"""How each kind of run shows its progress and its results on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from sparring.contracts.json import Beat, SummaryJson
from sparring.contracts.kinds import run_kind
from sparring.contracts.progress import NewLines, duration_text
from sparring.surfaces.cli.proof_tables import show_audit, show_check, show_proof
from sparring.surfaces.cli.ship_tables import show_shipment
from sparring.surfaces.cli.tables import show_summary, show_training


@dataclass(frozen=True, slots=True)
class Shown:
    """The values of a heartbeat that the progress bar shows."""

    done: int
    total: int
    news: str


@dataclass(frozen=True, slots=True)
class KindView:
    """How runs of one kind are shown.

    `stopping` is printed when a stop is requested. `shown` returns the progress in a heartbeat,
    `show` prints the summary, and `resume_hint` returns advice on resuming. `lines` makes a
    function that returns the lines to print for a heartbeat. With `shows_stopped`, the summary of
    a stopped run is printed, too.
    """

    stopping: str
    shown: Callable[[Beat], Shown]
    show: Callable[[Any, Console], None]
    resume_hint: Callable[[Beat, str], str]
    lines: Callable[[], Callable[[Beat], list[str]]] = lambda: lambda _: []
    shows_stopped: bool = False


def _training(beat: Beat) -> Shown:
    left = beat.get("seconds_left")
    news = f"{beat['tokens_drawn']:,} tokens sampled"
    news += "" if left is None else f" · about {duration_text(left)} left"
    return Shown(beat["step"], beat["steps"], news)


def _playing(beat: Beat) -> Shown:
    news = f"{beat['passed']} fully passed · {beat['sampled_tokens']:,} tokens"
    if (left := beat.get("seconds_left")) is not None:
        news += f" · about {duration_text(left)} left to play"
    return Shown(beat["rollouts"], beat["total"], news)


def _training_resume_hint(beat: Beat, run: str) -> str:
    if not beat.get("step"):
        return (
            f"no step has ended, so there is no checkpoint yet: `sparring run resume {run}` starts "
            "from the beginning, including a warm start"
        )
    return f"`sparring run resume {run}` resumes from the newest checkpoint"


def _playing_resume_hint(beat: Beat, run: str) -> str:
    if not beat.get("total") or beat["rollouts"] >= beat["total"]:
        return ""
    return (
        f"{beat['rollouts']} of {beat['total']} rollouts are saved: `sparring run resume {run}` "
        "plays the rest. (In-process weights play in blocks of --max-concurrency rollouts; a block "
        "is saved when it is complete.)"
    )


def _playing_view(show: Callable[[Any, Console], None]) -> KindView:
    """Return the view of a kind that plays rollouts and does not train."""
    return KindView(
        stopping="stopping…",
        shown=_playing,
        show=show,
        resume_hint=_playing_resume_hint,
    )


_VIEWS = {
    "train": KindView(
        stopping="stopping after this step; a checkpoint is saved if a step has ended…",
        shown=_training,
        show=show_training,
        resume_hint=_training_resume_hint,
        lines=NewLines,
    ),
    "eval": _playing_view(show_summary),
    "check": replace(_playing_view(show_check), shows_stopped=True),
    "audit": _playing_view(show_audit),
    "prove": _playing_view(show_proof),
    "ship": _playing_view(show_shipment),
}


def show_results(kind: str, summary: SummaryJson, console: Console) -> None:
    """Print the results of a run of this kind."""
    typed = run_kind(kind, "the run").summary.model_validate(summary)
    view_of(kind).show(typed, console)


def view_of(kind: str) -> KindView:
    """Return the view of a kind of run."""
    return _VIEWS[run_kind(kind, "the run").name]
