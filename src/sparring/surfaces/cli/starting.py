"""The commands that start a run and follow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from sparring.contracts.errors import InvalidInput, NotBetter
from sparring.contracts.kinds import run_kind
from sparring.contracts.specs import EndpointSpec, PolicySpec, Table
from sparring.operations.checking import start_audit, start_check
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import Caller, Operation
from sparring.operations.plans.planning import start_planned
from sparring.operations.proving import start_proof
from sparring.operations.run_control import clone_run, resume_run
from sparring.operations.run_views import ResultsQuery
from sparring.operations.runs import run_results
from sparring.operations.shipping import start_ship
from sparring.operations.starting import Started
from sparring.operations.training import start_train
from sparring.surfaces.cli.commands import AsJson, Detach, Owner, keyword, with_request
from sparring.surfaces.cli.following import begin

KeyVariable = Annotated[
    str | None,
    typer.Option(
        help="Environment variable that holds the endpoint's key. Default: OPENAI_API_KEY for "
        "OpenAI, OPENROUTER_API_KEY for OpenRouter, no key for other servers."
    ),
]


def _starts(
    operation: Operation[Any, Started], *, has_verdict: bool = False, strict: str = ""
) -> Callable[..., None]:
    """Return a command that starts a run, and follows it unless detached. With `has_verdict`, it
    exits with 110 if the run that it follows does not pass; `strict` is the help of an option that
    asks for this."""

    def start(
        request: Any, caller: Owner, detach: Detach, as_json: AsJson, **options: bool
    ) -> None:
        started = operation(request, caller)
        begin(started, caller, detach=detach, as_json=as_json)
        if not detach and options.get("strict", has_verdict):
            _exit_by_verdict(started, caller)

    option = Annotated[bool, typer.Option("--strict", help=strict)]
    return with_request(
        start, operation.request, [keyword("strict", option, False)] if strict else ()
    )


train = _starts(start_train)
prove = _starts(start_proof, has_verdict=True)
ship = _starts(start_ship, has_verdict=True)
run_resume = _starts(resume_run)
run_clone = _starts(clone_run)
plan_start = _starts(start_planned)
check = _starts(start_check, strict="Exit with 110 unless the verdict is learnable.")
audit = _starts(start_audit, strict="Exit with 110 if a finding is serious.")


def eval(
    request: StartEval,
    caller: Owner,
    detach: Detach,
    as_json: AsJson,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(help="OpenAI-compatible URL that serves --model; may be repeated."),
    ] = None,
    vllm: Annotated[
        str | None,
        typer.Option(help="URL of a vLLM server that serves --model, called with token ids."),
    ] = None,
    key_variable: KeyVariable = None,
) -> None:
    """Start an evaluation, and follow it unless detached."""
    if vllm and endpoint:
        raise InvalidInput("--vllm and --endpoint exclude each other; pass one of them")
    if urls := [vllm] if vllm else endpoint:
        servers = servers_at(urls, request.settings, key_variable, is_vllm=vllm is not None)
        request = request.model_copy(update={"servers": servers})
    begin(start_eval(request, caller), caller, detach=detach, as_json=as_json)


def servers_at(
    urls: list[str], settings: Table, key_variable: str | None, *, is_vllm: bool
) -> PolicySpec:
    """Return the servers at these addresses, of the model that the settings name."""
    model = settings.get("model")
    if model is None:
        raise InvalidInput(
            "--endpoint and --vllm need the name of the model to play: pass --model NAME"
        )
    return PolicySpec(
        kind="vllm" if is_vllm else "endpoint",
        model=model,
        endpoints=tuple(_server(url, model, key_variable) for url in urls),
        family=settings.get("family"),
    )


def _server(url: str, model: str, key_variable: str | None) -> EndpointSpec:
    named = {"key_variable": key_variable} if key_variable else {}
    try:
        return EndpointSpec.model_validate({"base_url": url, "model": model, **named})
    except ValidationError as error:
        raise InvalidInput(error.errors()[0]["msg"].removeprefix("Value error, ")) from error


def _exit_by_verdict(started: Started, caller: Caller) -> None:
    """Exit with 110 if a run did not pass."""
    found = run_results(ResultsQuery(run=started.run), caller)
    summary = run_kind(found.kind, "the run").summary.model_validate(found.summary)
    if not summary.has_passed:
        raise typer.Exit(NotBetter.exit_code)
