"""Declares operations: request, result, role, effects, and names on each surface.

Every surface calls operations through `Operation`, which enforces roles, the limit on the runs that
operators start per day, and the activity log: it has all calls that change state, and refused calls
of operators and viewers.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import secrets
import threading
import time
import typing
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from sparring.contracts.errors import (
    ActivityLogBusy,
    InfrastructureError,
    InvalidInput,
    LauncherFailed,
    NotPermitted,
    OverBudget,
    SparringError,
)
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import Frozen
from sparring.operations.activity_log import ActivityLog, CallOutcome
from sparring.projects import find_project
from sparring.run_folder.layout import is_plain_name
from sparring.settings.project_file import Budget


class Role(IntEnum):
    """The role of a caller; each role has all permissions of the lower roles."""

    VIEWER = 0
    OPERATOR = 1
    OWNER = 2


_HOUR_SECONDS = 3_600.0
_MAX_REFUSALS_LOGGED = 60
_MAX_CHARACTERS = 2_000
_LOGGED_RESULT_FIELDS = ("run", "plan", "proof", "state", "message")
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


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One call of an operation, as the activity log records it: the caller, the verb and the
    request. `starts` marks calls that start a run.

    A request is logged before it is carried out, and its outcome afterwards: if the process dies in
    between, the log has a request without an outcome. An operator's call that cannot be logged is
    refused; an owner's call is carried out, with a warning.
    """

    caller: Caller
    verb: str
    request: JsonObject
    starts: bool = False
    call: str = field(default_factory=lambda: secrets.token_hex(6))

    @contextmanager
    def logged(self) -> Iterator[JsonObject]:
        """Log a call that changes state around the body. The yielded table is logged as its result.

        Counting the starts of a day and logging are one atomic step, so concurrent calls cannot
        exceed the limit.
        """
        result: JsonObject = {}
        is_binding = not self.caller.is_owner
        request = {"request": _short(self.request)}
        try:
            self._append(CallOutcome.REQUESTED, request, is_binding, self._refuse_over_limit)
        except SparringError as error:
            if not isinstance(error, ActivityLogBusy):
                self.note_refusal(error)
            raise
        try:
            yield result
        except Exception as error:
            self._append(_outcome(error), {"reason": _reason(error)}, is_binding)
            raise
        self._append(CallOutcome.DONE, {"result": _short(result)})  # its request is logged

    def note_refusal(self, error: Exception) -> None:
        """Log the refusal of a call whose request was not logged, or an error in Sparring.

        At most `_MAX_REFUSALS_LOGGED` refusals per caller and hour are logged. Further refusals are
        only counted, and the next logged refusal states the count.
        """
        skipped = _REFUSALS.count(self.caller.runs, self.caller.name)
        if skipped is None:
            return
        is_binding = not self.caller.is_owner and isinstance(error, SparringError)
        facts: JsonObject = {"request": _short(self.request), "reason": _reason(error)}
        if skipped:
            facts["also_refused"] = skipped
        self._append(_outcome(error), facts, is_binding)

    def note_done(self, result: JsonObject) -> None:
        """Log a completed call of the owner that created the folder of runs."""
        facts = {"request": _short(self.request), "result": _short(result)}
        self._append(CallOutcome.DONE, facts)

    def _append(
        self,
        outcome: CallOutcome,
        facts: JsonObject,
        is_binding: bool = False,
        allowed: Callable[[ActivityLog], None] | None = None,
    ) -> None:
        """Append an entry. If it cannot be written, raise ActivityLogBusy if `is_binding`, else log
        a warning: an owner must be able to stop a run on a full disk."""
        entry: JsonObject = {"time": time.time(), "call": self.call, "who": self.caller.name}
        entry |= {"role": self.caller.role.name.lower(), "verb": self.verb}
        entry["outcome"] = outcome.value
        if self.starts:
            entry["starts"] = True
        entry |= facts
        try:
            ActivityLog(self.caller.runs).append(entry, allowed)
        except (OSError, ActivityLogBusy) as error:
            if is_binding:
                raise ActivityLogBusy(f"the activity log cannot be written: {error}") from error
            logging.getLogger(__name__).warning("not written to the activity log: %s", error)

    def _refuse_over_limit(self, log: ActivityLog) -> None:
        if self.caller.is_owner or not self.starts:
            return
        most = self.caller.budget().starts_per_day
        if most is not None and (used := log.starts_today()) >= most:
            raise OverBudget(
                f"operators have started {used} runs within 24 hours, and this project allows "
                f"{most}; wait, or have the owner raise starts_per_day in [budget] of the project "
                "file"
            )


class _Refusals:
    """Limits the refusals that this process logs per hour, for each caller and folder of runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: dict[tuple[Path, str], deque[float]] = {}
        self._skipped: Counter[tuple[Path, str]] = Counter()

    def count(self, runs: Path, who: str) -> int | None:
        """Count one refusal. Return the number skipped before it, or None if it is skipped, too."""
        now, caller = time.monotonic(), (runs, who)
        with self._lock:
            logged_at = self._logged.setdefault(caller, deque())
            while logged_at and logged_at[0] < now - _HOUR_SECONDS:
                logged_at.popleft()
            if len(logged_at) >= _MAX_REFUSALS_LOGGED:
                self._skipped[caller] += 1
                return None
            logged_at.append(now)
            return self._skipped.pop(caller, 0)


_REFUSALS = _Refusals()


def _facts_of(result: BaseModel) -> JsonObject:
    """Return the fields of a result that are logged: run, plan, proof, state and message."""
    values = {name: getattr(result, name, None) for name in _LOGGED_RESULT_FIELDS}
    facts: JsonObject = {name: str(value) for name, value in values.items() if value}
    return facts if getattr(result, "is_new", True) else {**facts, "is_new": False}


def _outcome(error: Exception) -> CallOutcome:
    """Return `refused` if the call had no effect, `failed` if it may have had one."""
    is_refusal = isinstance(error, SparringError)
    has_begun = isinstance(error, InfrastructureError | LauncherFailed)
    return CallOutcome.REFUSED if is_refusal and not has_begun else CallOutcome.FAILED


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_CHARACTERS]


def _short(table: JsonObject) -> Any:
    """Return the table, or its first characters if it is long, so that a log line stays short."""
    text = json.dumps(table, default=repr)
    return table if len(text) <= _MAX_CHARACTERS else {"shortened": text[:_MAX_CHARACTERS]}


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
        call = self._call(caller, request.model_dump(mode="json", exclude_defaults=True))
        if caller.outer_operation:
            return self._run_permitted(request, caller)
        if self._is_logged(caller):
            with call.logged() as facts:
                result = self._run_permitted(request, caller)
                facts |= _facts_of(result)
                return result
        try:
            result = self._run_permitted(request, caller)
        except SparringError as error:
            if not caller.is_owner:
                call.note_refusal(error)
            raise
        # The owner's first call may have created the folder that holds the log.
        if self.changes_state and caller.runs.is_dir():
            call.note_done(_facts_of(result))
        return result

    def ask(self, arguments: JsonObject, caller: Caller) -> Result:
        """Call the operation with plain values. Raise InvalidInput if they do not validate."""
        try:
            request = self.request.model_validate(dict(arguments))
        except ValidationError as error:
            refusal = InvalidInput(_describe(error, self.request))
            if not caller.is_owner:
                self._call(caller, arguments).note_refusal(refusal)
            raise refusal from error
        return self(request, caller)

    def _is_logged(self, caller: Caller) -> bool:
        """Return whether the request is logged before it runs. Reads are never logged. An owner's
        call is logged only if the folder of runs exists, so that a mistyped command creates none.
        """
        return self.changes_state and (not caller.is_owner or caller.runs.is_dir())

    def _call(self, caller: Caller, arguments: JsonObject) -> LoggedCall:
        return LoggedCall(caller, self.name, arguments, self.starts)

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
