"""Declares operations: request, result, role, effects, and names on each surface.

Every surface calls operations through `Operation`, which enforces roles, the activity log, and the
limit on the runs that operators start per day.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from sparring.contracts.errors import InvalidInput, NotPermitted, SparringError
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import Frozen
from sparring.operations.activity_log import LoggedCall, facts_of, logged, note_done, note_refusal
from sparring.projects import find_project
from sparring.run_folder.layout import is_plain_name
from sparring.settings.project_file import Budget


class Role(IntEnum):
    """The role of a caller; each role has all permissions of the lower roles."""

    VIEWER = 0
    OPERATOR = 1
    OWNER = 2


_RESERVED = ("owner", "sparring", "supervisor", "worker")  # authors in the events of a run


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an operation, and the project that it works in.

    `outer_operation` is the name of the operation that makes a nested call. Without
    `can_supervise`, reads start no queued run and replace no dead supervisor; `sparring view` uses
    this for a folder of runs that may come from another machine.
    """

    role: Role
    runs: Path
    name: str = "owner"
    folder: Path = Path()
    outer_operation: str = ""
    can_supervise: bool = True

    def __post_init__(self) -> None:
        """Raise InvalidInput if an operator's or viewer's name is reserved, or not a plain name."""
        is_name = is_plain_name(self.name) and self.name.isascii()
        is_name = is_name and self.name.lower() not in _RESERVED
        if self.role < Role.OWNER and not is_name:
            raise InvalidInput(
                f"{self.name[:80]!r} cannot be the name of an operator: use letters, digits, - and "
                f"_; {', '.join(_RESERVED)} are reserved"
            )

    @property
    def is_owner(self) -> bool:
        """Whether the caller has the role of an owner."""
        return self.role >= Role.OWNER

    def budget(self) -> Budget:
        """Return the budget of the project that applies to the caller."""
        return find_project(self.folder).file.budget_for(is_owner=self.is_owner)


OWNER_ONLY = "owner_only"  # marks a field that only the owner may set; tools leave it out
FOR_OWNERS: JsonObject = {OWNER_ONLY: True}


class NoArguments(Frozen):
    """The request of an operation without arguments."""


@dataclass(frozen=True, slots=True)
class Forms:
    """The names of an operation on each surface."""

    cli: str = ""
    tool: str = ""
    python: str = ""


Request = TypeVar("Request", bound=Frozen)
Result = TypeVar("Result", bound=Frozen)


@dataclass(frozen=True, slots=True)
class Operation(Generic[Request, Result]):
    """One verb: its role, its request and result, and the function that runs it.

    `starts`: starts or resumes a run; `ends`: deletes or stops something; `is_idempotent`: a
    repeated call has no further effect.
    """

    name: str
    role: Role
    changes_state: bool
    request: type[Request]
    result: type[Result]
    run: Callable[[Request, Caller], Result]
    forms: Forms = Forms()
    starts: bool = False
    ends: bool = False
    is_idempotent: bool = False

    @property
    def about(self) -> str:
        """The docstring of the operation's function."""
        return inspect.getdoc(self.run) or ""

    @property
    def summary(self) -> str:
        """The first line of `about`."""
        return self.about.partition("\n")[0]

    def __call__(self, request: Request, caller: Caller) -> Result:
        """Run the operation. Calls that change state and operators' refused calls are logged."""
        arguments = request.model_dump(mode="json", exclude_defaults=True)
        if caller.outer_operation or not self._is_logged(caller):
            result = self._run_unlogged(request, caller, arguments)
            # The owner's first call may have created the folder that holds the log.
            if self.changes_state and not caller.outer_operation and caller.runs.is_dir():
                note_done(self._entry(caller, arguments), caller.runs, facts_of(result))
            return result
        entry = self._entry(caller, arguments)
        is_binding = not caller.is_owner

        def max_starts() -> int | None:
            is_limited = self.starts and is_binding
            return caller.budget().starts_per_day if is_limited else None

        with logged(
            entry, caller.runs, max_starts=max_starts, is_binding=is_binding
        ) as logged_result:
            result = self._run_permitted(request, caller)
            logged_result |= facts_of(result)
            return result

    def ask(self, arguments: JsonObject, caller: Caller) -> Result:
        """Call the operation with plain values. Raise InvalidInput if they do not validate."""
        try:
            request = self.request.model_validate(dict(arguments))
        except ValidationError as error:
            refusal = InvalidInput(_describe(error, self.request))
            if not caller.is_owner:
                note_refusal(self._entry(caller, arguments), caller.runs, refusal, is_binding=True)
            raise refusal from error
        return self(request, caller)

    def _is_logged(self, caller: Caller) -> bool:
        """Return whether the request is logged before it runs. Reads are never logged. An owner's
        call is logged only if the folder of runs exists, so that a mistyped command creates none.
        """
        return self.changes_state and (not caller.is_owner or caller.runs.is_dir())

    def _entry(self, caller: Caller, arguments: JsonObject) -> LoggedCall:
        return LoggedCall(caller.name, caller.role.name.lower(), self.name, arguments, self.starts)

    def _run_unlogged(self, request: Request, caller: Caller, arguments: JsonObject) -> Result:
        """Run the operation, and log only an error of an operator's or viewer's call."""
        try:
            return self._run_permitted(request, caller)
        except SparringError as error:
            if not caller.is_owner and not caller.outer_operation:
                note_refusal(self._entry(caller, arguments), caller.runs, error, is_binding=True)
            raise

    def _run_permitted(self, request: Request, caller: Caller) -> Result:
        if caller.role < self.role:
            raise NotPermitted(
                f"{self.name} needs the role {self.role.name.lower()}, and {caller.name} is "
                f"{caller.role.name.lower()}; ask the owner of this project"
            )
        try:
            return self.run(
                request, replace(caller, outer_operation=caller.outer_operation or self.name)
            )
        except ValidationError as error:
            raise InvalidInput(_describe(error)) from error


REGISTRY: dict[str, Operation[Any, Any]] = {}


def operation(
    name: str,
    *,
    role: Role,
    changes_state: bool,
    forms: Forms = Forms(),  # noqa: B008 - frozen
    starts: bool = False,
    ends: bool = False,
    is_idempotent: bool = False,
) -> Callable[[Callable[[Request, Caller], Result]], Operation[Request, Result]]:
    """Register a function of (request, caller) as the operation `name`."""

    def declare(function: Callable[[Request, Caller], Result]) -> Operation[Request, Result]:
        hints = typing.get_type_hints(function)
        first = next(iter(inspect.signature(function).parameters))

        @wraps(function)
        def run(request: Request, caller: Caller) -> Result:
            return function(request, caller)

        declared = Operation(
            name,
            role,
            changes_state,
            hints[first],
            hints["return"],
            run,
            forms,
            starts=starts,
            ends=ends,
            is_idempotent=is_idempotent,
        )
        REGISTRY[name] = declared
        return declared

    return declare


def _describe(error: ValidationError, request: type[Frozen] | None = None) -> str:
    lines = []
    for problem in error.errors():
        name, message = ".".join(map(str, problem["loc"])), problem["msg"]
        if problem["type"] == "extra_forbidden" and request is not None:
            message = f"there is no such argument; there are {', '.join(request.model_fields)}"
        lines.append(f"{name[:80]}: {message}".removeprefix(": "))
    return "; ".join(lines).replace("Value error, ", "")


_MODULES = (  # that declare operations
    "chatting",
    "checking",
    "curves",
    "doctor",
    "environments",
    "evaluating",
    "models",
    "permissions",
    "plans.planning",
    "proving",
    "placing",
    "reporting",
    "rollout_pairs",
    "rollouts",
    "run_control",
    "runs",
    "shipping",
    "activity",
    "token_views",
    "tokens",
    "training",
)


def all_operations() -> Mapping[str, Operation[Any, Any]]:
    """Import every module that declares operations, and return all operations, sorted by name."""
    for module in _MODULES:
        importlib.import_module(f"sparring.operations.{module}")
    return dict(sorted(REGISTRY.items()))
