"""Declaring an operation: request, result, role, and whether it changes state.

Every surface reads the registry, so that a verb exists once and no surface can get round
what is enforced here.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from sparring.contracts.errors import InvalidInput, NotPermitted
from sparring.contracts.specs import Frozen


class Role(IntEnum):
    """Who may do what; each role may do what the ones below it may."""

    VIEWER = 0
    OPERATOR = 1
    OWNER = 2


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and in which project."""

    role: Role
    runs: Path
    name: str = "owner"
    folder: Path = Path()


class Nothing(Frozen):
    """What an operation is asked that needs no more than its name."""


Request = TypeVar("Request", bound=Frozen)
Result = TypeVar("Result", bound=Frozen)


@dataclass(frozen=True, slots=True)
class Operation(Generic[Request, Result]):
    """One verb, as surfaces see it."""

    name: str
    role: Role
    changes_state: bool
    request: type[Request]
    result: type[Result]
    run: Callable[[Request, Caller], Result]

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.run) or "").partition("\n")[0]

    def __call__(self, request: Request, caller: Caller) -> Result:
        if caller.role < self.role:
            raise NotPermitted(
                f"{self.name} takes the role {self.role.name.lower()}, and {caller.name} is "
                f"{caller.role.name.lower()}; ask the owner of this project"
            )
        try:
            return self.run(request, caller)
        except ValidationError as error:
            told = "; ".join(
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}".removeprefix(": ")
                for problem in error.errors()
            )
            raise InvalidInput(told.replace("Value error, ", "")) from error


REGISTRY: dict[str, Operation[Any, Any]] = {}


def operation(
    name: str, *, role: Role, changes_state: bool
) -> Callable[[Callable[[Request, Caller], Result]], Operation[Request, Result]]:
    """Register a function of (request, caller) as the operation `name`."""

    def declare(function: Callable[[Request, Caller], Result]) -> Operation[Request, Result]:
        hints = typing.get_type_hints(function)
        first = next(iter(inspect.signature(function).parameters))

        @wraps(function)
        def run(request: Request, caller: Caller) -> Result:
            return function(request, caller)

        declared = Operation(name, role, changes_state, hints[first], hints["return"], run)
        REGISTRY[name] = declared
        return declared

    return declare
