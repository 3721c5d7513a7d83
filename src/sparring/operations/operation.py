"""Declaring an operation: request, result, role, whether it changes state, what it is called.

Every surface reads the registry, so that a verb exists once and no surface can get round
what is enforced here: roles, the record of who did what, and how often an operator may start.
"""

from __future__ import annotations

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
from sparring.contracts.specs import Frozen
from sparring.operations.limits import budget_for
from sparring.operations.record.trail import Entry, note_done, note_refusal, recorded, told_of
from sparring.run_folder.ids import is_plain_name


class Role(IntEnum):
    """Who may do what; each role may do what the ones below it may."""

    VIEWER = 0
    OPERATOR = 1
    OWNER = 2


_RESERVED = ("owner", "sparring", "supervisor", "worker")  # authors of a run's history


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and in which project; `within` names the operation that asks in its turn."""

    role: Role
    runs: Path
    name: str = "owner"
    folder: Path = Path()
    within: str = ""

    def __post_init__(self) -> None:
        """Whoever is not the owner must not be taken for it, in a record or by another caller."""
        is_name = is_plain_name(self.name) and self.name not in _RESERVED
        if self.role < Role.OWNER and not is_name:
            raise InvalidInput(
                f"{self.name[:80]!r} cannot be the name of an operator: use letters, digits, - and "
                "_, and not owner or sparring"
            )

    @property
    def is_owner(self) -> bool:
        return self.role >= Role.OWNER


OWNER_ONLY = "owner_only"  # of a field that is refused to all others, so that no tool shows it
FOR_OWNERS: dict[str, Any] = {OWNER_ONLY: True}


class Nothing(Frozen):
    """What an operation is asked that needs no more than its name."""


@dataclass(frozen=True, slots=True)
class Forms:
    """What a verb is called on each surface, and by people who come from elsewhere."""

    cli: str = ""
    tool: str = ""
    python: str = ""
    known_as: tuple[str, ...] = ()


Request = TypeVar("Request", bound=Frozen)
Result = TypeVar("Result", bound=Frozen)


@dataclass(frozen=True, slots=True)
class Operation(Generic[Request, Result]):
    """One verb, as surfaces see it. `starts`: a run begins or goes on; `ends`: something is taken
    away or cut short; `is_idempotent`: twice is as good as once."""

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
        return inspect.getdoc(self.run) or ""

    @property
    def summary(self) -> str:
        return self.about.partition("\n")[0]

    def __call__(self, request: Request, caller: Caller) -> Result:
        asked = request.model_dump(mode="json", exclude_defaults=True)
        if caller.within or not self._is_on_record(caller):
            result = self._answered(request, caller, asked)
            if self.changes_state and not caller.within and caller.runs.is_dir():  # the first run
                note_done(self._entry(caller, asked), caller.runs, told_of(result))
            return result
        entry = self._entry(caller, asked)
        binding = not caller.is_owner

        def most() -> int | None:
            limited = self.starts and binding
            return budget_for(caller.folder, is_owner=False).starts_per_day if limited else None

        with recorded(entry, caller.runs, most_starts=most, is_binding=binding) as told:
            result = self._permitted(request, caller)
            told |= told_of(result)
            return result

    def ask(self, arguments: Mapping[str, Any], caller: Caller) -> Result:
        """The same from plain values; what is no request is a refusal like any other."""
        try:
            request = self.request.model_validate(dict(arguments))
        except ValidationError as error:
            refusal = InvalidInput(_told(error, self.request))
            if not caller.is_owner:
                note_refusal(self._entry(caller, arguments), caller.runs, refusal, is_binding=True)
            raise refusal from error
        return self(request, caller)

    # ------------------------------------------------------------------ inside

    def _is_on_record(self, caller: Caller) -> bool:
        """An owner's look is nobody's business, and where there are no runs yet, what an owner
        mistypes need not make a folder for them."""
        return self.changes_state and (not caller.is_owner or caller.runs.is_dir())

    def _entry(self, caller: Caller, asked: Mapping[str, Any]) -> Entry:
        return Entry(caller.name, caller.role.name.lower(), self.name, asked, self.starts)

    def _answered(self, request: Request, caller: Caller, asked: Mapping[str, Any]) -> Result:
        """Of what is not on record, what is refused to others than the owner is."""
        try:
            return self._permitted(request, caller)
        except SparringError as error:
            if not caller.is_owner and not caller.within:
                note_refusal(self._entry(caller, asked), caller.runs, error, is_binding=True)
            raise

    def _permitted(self, request: Request, caller: Caller) -> Result:
        if caller.role < self.role:
            raise NotPermitted(
                f"{self.name} takes the role {self.role.name.lower()}, and {caller.name} is "
                f"{caller.role.name.lower()}; ask the owner of this project"
            )
        try:
            return self.run(request, replace(caller, within=caller.within or self.name))
        except ValidationError as error:
            raise InvalidInput(_told(error)) from error


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


def _told(error: ValidationError, request: type[Frozen] | None = None) -> str:
    lines = []
    for problem in error.errors():
        name, message = ".".join(map(str, problem["loc"])), problem["msg"]
        if problem["type"] == "extra_forbidden" and request is not None:
            message = f"there is no such argument; there are {', '.join(request.model_fields)}"
        lines.append(f"{name[:80]}: {message}".removeprefix(": "))
    return "; ".join(lines).replace("Value error, ", "")
