"""Commands that start a run: from options to a request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput, NotBetter
from sparring.contracts.proof_specs import OPENROUTER, OPENROUTER_KEY
from sparring.operations.checking import StartAudit, StartCheck, start_audit, start_check
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import Caller, Role
from sparring.operations.proving import StartProof, start_proof
from sparring.operations.run_views import ResultsQuery
from sparring.operations.runs import run_results
from sparring.operations.starting import Started
from sparring.operations.training import StartTrain, start_train
from sparring.projects import find_project
from sparring.secrets import read_key
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


def models_from(named: list[str] | None, key_variable: str) -> list[dict[str, Any]] | None:
    """`MODEL@URL`, or a model of OpenRouter's; None where nobody named any."""
    if named is None:
        return None
    found = []
    for each in named:
        model, at, url = each.partition("@http")
        if at:
            found.append({"model": model, "base_url": f"http{url}", "key_variable": key_variable})
        else:
            if read_key(OPENROUTER_KEY) is None:
                raise InvalidInput(
                    f"--against {each} has no @URL, so that it would be OpenRouter's, and "
                    f"{OPENROUTER_KEY} is not set; write {each}@http://…"
                )
            key = {"base_url": OPENROUTER, "key_variable": OPENROUTER_KEY}
            found.append({"model": each, **key})
    return found


def evaluate(request: dict[str, Any], runs: str | None, *, detach: bool, as_json: bool) -> None:
    caller = owner(runs)
    started = start_eval(StartEval.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)


def train(request: dict[str, Any], runs: str | None, *, detach: bool, as_json: bool) -> None:
    caller = owner(runs)
    started = start_train(StartTrain.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)


def check(request: dict[str, Any], runs: str | None, *, detach: bool, as_json: bool) -> int:
    """110 unless it is learnable."""
    caller = owner(runs)
    started = start_check(StartCheck.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)
    return 0 if detach else _code(started, caller, lambda told: told["verdict"] == "learnable")


def audit(request: dict[str, Any], runs: str | None, *, detach: bool, as_json: bool) -> int:
    """110 where something grave is found."""
    caller = owner(runs)
    started = start_audit(StartAudit.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)

    def is_fine(told: dict[str, Any]) -> bool:
        return not any(each["is_grave"] for each in told["audit"])

    return 0 if detach else _code(started, caller, is_fine)


def prove(request: dict[str, Any], runs: str | None, *, detach: bool, as_json: bool) -> int:
    """110 unless it is better."""
    caller = owner(runs)
    started = start_proof(StartProof.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)
    return 0 if detach else _code(started, caller, lambda told: told["verdict"] == "better")


def _code(started: Started, caller: Caller, is_fine: Callable[[dict[str, Any]], bool]) -> int:
    summary = run_results(ResultsQuery(run=started.run), caller).summary
    return 0 if is_fine(summary) else NotBetter.exit_code
