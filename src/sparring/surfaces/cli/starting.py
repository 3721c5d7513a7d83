"""Implements the commands that start a run, and turns their options into requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparring.contracts.errors import InvalidInput, NotBetter, SparringError
from sparring.contracts.json import JsonObject
from sparring.contracts.kinds import run_kind
from sparring.contracts.proof_specs import OPENROUTER, OPENROUTER_KEY
from sparring.operations.checking import StartAudit, StartCheck, start_audit, start_check
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import Caller, Role
from sparring.operations.proving import StartProof, start_proof
from sparring.operations.run_views import ResultsQuery
from sparring.operations.runs import run_results
from sparring.operations.shipping import start_ship
from sparring.operations.starting import Started
from sparring.operations.training import StartTrain, start_train
from sparring.projects import find_project
from sparring.secrets import read_key
from sparring.settings.layers import assigned
from sparring.surfaces.cli.following import begin


def owner(runs: str | None = None) -> Caller:
    """Return the caller of every command: the owner of the project in the current folder."""
    here = Path.cwd()
    folder = Path(runs) if runs is not None else find_project(here).runs
    return Caller(Role.OWNER, folder, folder=here)


def reader(runs: str | None = None) -> Caller:
    """Return the caller of commands that only read. In a folder named with `--runs` that is not the
    project's, reading starts no runs: the folder may be a copy from elsewhere, and must not execute
    the code that its specs name."""
    caller = owner(runs)
    if runs is None:
        return caller
    try:
        is_own = find_project(caller.folder).runs.resolve() == caller.runs.resolve()
    except SparringError:  # reading another folder needs no valid project here
        is_own = False
    return replace(caller, can_supervise=is_own)


def settings_from(options: JsonObject, assignments: list[str]) -> JsonObject:
    """Return the settings from options that are not None and from `--set NAME=VALUE`.

    `a.b=c` sets the key `b` of the table `a`.
    """
    return assigned(
        assignments, {name: value for name, value in options.items() if value is not None}
    )


def servers_from(
    model: str | None,
    endpoints: list[str] | None,
    vllm: str | None,
    key_variable: str | None,
    family: str | None,
) -> JsonObject | None:
    """Return the servers of the model; None if the run's process loads the weights."""
    if vllm and endpoints:
        raise InvalidInput("--vllm and --endpoint exclude each other; pass one of them")
    urls = [vllm] if vllm else endpoints or []
    if not urls:
        return None
    if model is None:
        raise InvalidInput(
            "--endpoint and --vllm need the name of the model to play: pass --model NAME"
        )
    servers = [_server(url, model, key_variable) for url in urls]
    kind = "vllm" if vllm else "endpoint"
    return {"kind": kind, "model": model, "endpoints": servers, "family": family}


def _server(url: str, model: str, key_variable: str | None) -> JsonObject:
    named = {"key_variable": key_variable} if key_variable else {}
    return {"base_url": url, "model": model, **named}


def models_from(names: list[str] | None, key_variable: str | None) -> list[JsonObject] | None:
    """Return the endpoints of models named `MODEL@URL`, or `MODEL` on OpenRouter. Without
    `names`, return None, which stands for the default models."""
    if names is None:
        return None
    endpoints = []
    for name in names:
        model, at, url = name.partition("@http")
        if at:
            endpoints.append(_server(f"http{url}", model, key_variable))
        elif "@" in name and "@preset/" not in name:  # OpenRouter's presets are names of models
            raise InvalidInput(f"--against {name} names no URL; write MODEL@http://…")
        else:
            if read_key(OPENROUTER_KEY) is None:
                raise InvalidInput(
                    f"--against {name} has no @URL and so means a model on OpenRouter, but "
                    f"{OPENROUTER_KEY} is not set: set it, or write {name}@http://…"
                )
            endpoints.append(_server(OPENROUTER, name, OPENROUTER_KEY))
    return endpoints


def evaluate(request: JsonObject, runs: str | None, *, detach: bool, as_json: bool) -> None:
    """Start an evaluation, and follow it unless detached."""
    caller = owner(runs)
    started = start_eval(StartEval.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)


def train(request: JsonObject, runs: str | None, *, detach: bool, as_json: bool) -> None:
    """Start a training run, and follow it and its proof unless detached."""
    caller = owner(runs)
    started = start_train(StartTrain.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)


def check(request: JsonObject, runs: str | None, *, detach: bool, as_json: bool) -> int:
    """Start a check. Return 110 unless it is detached or the verdict is learnable, else 0."""
    caller = owner(runs)
    started = start_check(StartCheck.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)
    return 0 if detach else _exit_code(started, caller)


def audit(request: JsonObject, runs: str | None, *, detach: bool, as_json: bool) -> int:
    """Start an audit of measures. Return 110 if it is followed and a finding is serious, else 0."""
    caller = owner(runs)
    started = start_audit(StartAudit.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)
    return 0 if detach else _exit_code(started, caller)


def prove(request: JsonObject, runs: str | None, *, detach: bool, as_json: bool) -> int:
    """Start a proof. Return 110 unless it is detached or the verdict is better, else 0."""
    caller = owner(runs)
    started = start_proof(StartProof.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)
    return 0 if detach else _exit_code(started, caller)


def ship(request: JsonObject, runs: str | None, *, detach: bool, as_json: bool) -> int:
    """Start a shipment. Return 0 if it is detached or its verdict is fine, else 110."""
    caller = owner(runs)
    started = start_ship.ask(request, caller)
    begin(started, caller, detach=detach, as_json=as_json)
    return 0 if detach else _exit_code(started, caller)


def _exit_code(started: Started, caller: Caller) -> int:
    found = run_results(ResultsQuery(run=started.run), caller)
    summary = run_kind(found.kind, "the run").summary.model_validate(found.summary)
    return 0 if summary.has_passed else NotBetter.exit_code
