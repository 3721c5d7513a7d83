"""How each kind of run shows its progress and its results on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from sparring.contracts.json import Beat, SummaryJson
from sparring.contracts.kinds import run_kind
from sparring.contracts.progress import NewLines, left_text, seconds_left
from sparring.surfaces.cli.page import Part, show
from sparring.surfaces.cli.results import (
    audit_parts,
    check_parts,
    eval_parts,
    proof_parts,
    shipment_parts,
    training_parts,
)


@dataclass(frozen=True, slots=True)
class KindView:
    """How runs of one kind are shown.

    `stopping` is printed when a stop is requested. `progress` tells that of a heartbeat,
    `parts` returns what is shown of a summary, and `resume_hint` advice on resuming. `lines` makes
    a function that returns the lines to print for a heartbeat. With `shows_stopped`, the summary
    of a stopped run is printed, too.
    """

    stopping: str
    progress: Callable[[Beat], str]
    parts: Callable[[Any], Iterable[Part]]
    resume_hint: Callable[[Beat, str], str]
    lines: Callable[[], Callable[[Beat], list[str]]] = lambda: lambda _: []
    shows_stopped: bool = False


def _training(beat: Beat) -> str:
    step = f"step {beat['step']} of {beat['steps']}"
    return _joined(step, left_text(seconds_left(beat, time.time())))


def _playing(beat: Beat) -> str:
    left = left_text(seconds_left(beat, time.time()))
    return _joined(f"{beat['rollouts']} of {beat['total']}", left, f"{beat['passed']} passed")


def _joined(*parts: str) -> str:
    return " · ".join(filter(None, parts))


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
        "plays the rest"
    )


def _playing_view(parts: Callable[[Any], Iterable[Part]]) -> KindView:
    """Return the view of a kind that plays rollouts and does not train."""
    return KindView(
        stopping="stopping…",
        progress=_playing,
        parts=parts,
        resume_hint=_playing_resume_hint,
    )


_VIEWS = {
    "train": KindView(
        stopping="stopping after this step; a checkpoint is saved if a step has ended…",
        progress=_training,
        parts=training_parts,
        resume_hint=_training_resume_hint,
        lines=NewLines,
    ),
    "eval": _playing_view(eval_parts),
    "check": replace(_playing_view(check_parts), shows_stopped=True),
    "audit": _playing_view(audit_parts),
    "prove": _playing_view(proof_parts),
    "ship": _playing_view(shipment_parts),
}


def result_parts(kind: str, summary: SummaryJson) -> Iterable[Part]:
    """Return what is shown of the results of a run of this kind."""
    return view_of(kind).parts(run_kind(kind, "the run").summary.model_validate(summary))


def show_results(kind: str, summary: SummaryJson) -> None:
    """Print the results of a run of this kind."""
    show(result_parts(kind, summary), Console())


def view_of(kind: str) -> KindView:
    """Return the view of a kind of run."""
    return _VIEWS[run_kind(kind, "the run").name]
