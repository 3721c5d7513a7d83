"""Calls operations for HTTP requests: arguments in, JSON and a status code out."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from sparring.contracts import errors
from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.json import JsonObject, plain
from sparring.operations.operation import Caller, LoggedCall, Operation, Role, all_operations
from sparring.surfaces.tools.catalogue import limit_exceeded, refusal

_LOG = logging.getLogger(__name__)
# They act on the server's machine or manage its tokens, so only the command line offers them.
_LOCAL_ONLY = frozenset(
    {
        *("chat.prepare", "doctor", "env.new", "env.test", "models.fetch"),
        *("run.join", "run.supervise"),
        *("token.create", "token.list", "token.revoke"),
    }
)
_STATUS: Mapping[type[SparringError], int] = {
    errors.NotPermitted: 403,
    errors.RunNotFound: 404,
    errors.EnvironmentNotFound: 404,
    errors.NotFinished: 409,
    errors.IllegalMove: 409,
    errors.PlanRefused: 409,
    errors.ActivityLogBusy: 503,
    errors.InfrastructureError: 503,
    errors.InvalidInput: 400,
}
_SLOW = {
    "run.wait": "waiting",
    "run.compare": "comparing",
    "run.report": "comparing",
    "rollout.pairs": "comparing",
}
_ENVIRONMENT = (
    *("env.show", "config.show", "plan.make", "plan.revise", "plan.show", "plan.start"),
    *("train.start", "eval.start", "check.start", "audit.start", "prove.start", "ship.start"),
    *("run.clone", "run.resume"),
)
_SLOW |= dict.fromkeys(_ENVIRONMENT, "environment")


def web_operations(role: Role = Role.OWNER) -> dict[str, Operation[Any, Any]]:
    """Return the operations that have a route, by name. Roles below owner get only the operations
    that are also tools or change nothing."""
    return {
        name: each
        for name, each in all_operations().items()
        if name not in _LOCAL_ONLY
        and (role >= Role.OWNER or each.forms.tool or not each.changes_state)
    }


def pool_of(name: str) -> str:
    """Return the name of an operation's thread pool, so that slow calls never block quick ones."""
    return _SLOW.get(name, "quick")


def query_arguments(operation: Operation[Any, Any], pairs: list[tuple[str, str]]) -> JsonObject:
    """Return the arguments in a query string. Fields of type array become lists; any other name
    that occurs twice is refused."""
    arguments: JsonObject = {}
    fields = operation.request.model_json_schema().get("properties", {})
    for name, value in pairs:
        if (fields.get(name) or {}).get("type") == "array":
            arguments.setdefault(name, []).append(value)
        elif name in arguments:
            raise InvalidInput(f"{name[:80]} occurs twice in the query, and takes one value")
        else:
            arguments[name] = value
    return arguments


def call(
    operation: Operation[Any, Any], arguments: JsonObject, caller: Caller
) -> tuple[int, bytes]:
    """Perform an operation, and return the status code and the body of the answer."""
    try:
        if excess := limit_exceeded(arguments):
            raise refusal(operation.name, caller, {"arguments": excess}, excess)
        return 200, to_json(operation.ask(arguments, caller))
    except SparringError as error:
        return status_of(error), error_json(error)
    except Exception as error:  # a bug in Sparring: log it, and answer in JSON
        _LOG.exception("%s", operation.name)
        LoggedCall(caller, operation.name, {}).note_refusal(error)
        message = f"internal error ({type(error).__name__}); see the server's log"
        return 500, _error("Fault", message)


def to_json(result: Any) -> bytes:
    """Return a result as JSON that every parser accepts."""
    return json.dumps(plain(result), ensure_ascii=False, separators=(",", ":")).encode()


def status_of(error: SparringError) -> int:
    """Return the HTTP status of an error."""
    return next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 409)


def error_json(error: SparringError) -> bytes:
    """Return an error as JSON: its type and its message."""
    return _error(error.name, str(error))


def refuse_unknown(name: str, caller: Caller) -> tuple[int, bytes]:
    """Refuse a call of an operation that has no route, and log the refusal."""
    message = f"there is no operation {name[:80]!r}; /api/openapi.json lists them"
    return 404, error_json(refusal(f"http {name[:80]}", caller, {}, message))


def _error(kind: str, message: str) -> bytes:
    table = {"error": {"type": kind, "message": message}}
    return json.dumps(plain(table), ensure_ascii=False).encode()
