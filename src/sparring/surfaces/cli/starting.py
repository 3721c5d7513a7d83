"""`sparring eval` and `sparring train`: from options to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import Caller, Role
from sparring.operations.training import StartTrain, start_train
from sparring.projects import find_project
from sparring.settings.assignments import assigned
from sparring.surfaces.cli.following import begin


def owner(runs: str | None = None) -> Caller:
    """A person at the command line owns the project."""
    here = Path.cwd()
    place = Path(runs) if runs is not None else find_project(here).runs
    return Caller(Role.OWNER, place, folder=here)


def settings_from(given: dict[str, Any], assignments: list[str]) -> dict[str, Any]:
    """Options that were given, and `--set NAME=VALUE`, where `a.b=c` goes into a table."""
    return assigned(
        assignments, {name: value for name, value in given.items() if value is not None}
    )


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


def evaluate(request: dict[str, Any], runs: str | None, *, detach: bool, as_json: bool) -> None:
    caller = owner(runs)
    started = start_eval(StartEval.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)


def train(request: dict[str, Any], runs: str | None, *, detach: bool, as_json: bool) -> None:
    caller = owner(runs)
    started = start_train(StartTrain.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)
