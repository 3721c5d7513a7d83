"""`sparring eval`: start, follow, show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.progress import TimeRemainingColumn

from sparring.contracts.errors import InvalidInput
from sparring.operations.evaluating import (
    ResumeEval,
    StartEval,
    eval_summary,
    resume_eval,
    start_eval,
)
from sparring.operations.operation import Caller, Role
from sparring.operations.starting import Started
from sparring.projects import find_project
from sparring.surfaces.cli import following
from sparring.surfaces.cli.following import Beat, Kind, Shown
from sparring.surfaces.cli.tables import show_summary


def owner(runs: str | None = None) -> Caller:
    """A person at the command line owns the project."""
    here = Path.cwd()
    place = Path(runs) if runs is not None else find_project(here).runs
    return Caller(Role.OWNER, place, folder=here)


def servers_from(
    model: str | None,
    endpoints: list[str] | None,
    vllm: str | None,
    key_variable: str,
    family: str | None,
) -> dict[str, Any] | None:
    """Who plays instead of weights in this process; None where weights do."""
    urls = [vllm] if vllm else endpoints or []
    if not urls:
        return None
    if model is None:
        raise InvalidInput("a server needs to know which model to play: pass --model NAME as well")
    servers = [{"base_url": url, "model": model, "key_variable": key_variable} for url in urls]
    kind = "vllm" if vllm else "endpoint"
    return {"kind": kind, "model": model, "endpoints": servers, "family": family}


def start(request: dict[str, Any], caller: Caller) -> Started:
    if request["target"] is None:
        raise InvalidInput(
            "say what to play: sparring eval NAME (see `sparring env list`), or --resume RUN"
        )
    return start_eval(StartEval.model_validate(request), caller)


def resume(run: str, accept_changes: bool, caller: Caller) -> Started:
    return resume_eval(ResumeEval(run=run, accept_changes=accept_changes), caller)


def follow(started: Started, caller: Caller, *, as_json: bool) -> None:
    """Wait for the run; Ctrl-C stops it, and what it has played stays."""
    following.follow(started, caller, _EVALUATION, as_json=as_json)


def _shown(beat: Beat) -> Shown:
    news = f"{beat['passed']} fully passed · {beat['sampled_tokens']:,} tokens"
    return Shown("playing", beat["rollouts"], beat["total"], news)


def _way_on(beat: Beat, run: str) -> str:
    if not beat.get("total") or beat["rollouts"] >= beat["total"]:
        return ""
    return (
        f"{beat['rollouts']} of {beat['total']} rollouts are kept: `sparring eval --resume {run}` "
        "goes on. (In-process weights are played in blocks of --in-flight rollouts, each kept when "
        "it is whole.)"
    )


_EVALUATION = Kind(
    stopping="stopping…",
    shown=_shown,
    summary=eval_summary,
    show=show_summary,
    way_on=_way_on,
    columns=(TimeRemainingColumn(),),
)
