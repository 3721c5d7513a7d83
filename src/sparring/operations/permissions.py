"""Operation that shows the limits of a caller: role, locks, budget and remaining starts."""

from __future__ import annotations

from pydantic import Field

from sparring.contracts.specs import Frozen
from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller, Forms, NoArguments, Role, operation
from sparring.projects import find_project
from sparring.runs.index import Index
from sparring.runs.lifecycle import RunState
from sparring.settings.locks import default_locks
from sparring.settings.project_file import Budget

_NOTES = {
    Role.VIEWER: "a viewer may not change anything",
    Role.OPERATOR: "show_config lists, for each environment, what you may change",
    Role.OWNER: "the owner may change everything",
}


class ShownLock(Frozen):
    """One lock in the project file."""

    field: str
    value: object = Field(
        default=None, description="null: the value that the project file and the environment set"
    )
    environment: str = Field(default="", description="empty: all environments")
    author: str = ""
    reason: str = ""


class Limits(Frozen):
    """The limits of the caller."""

    name: str
    role: str
    project: str
    budget: Budget
    starts_today: int = Field(
        description="runs that operators started or resumed in the last 24 hours"
    )
    starts_left: int | None = Field(default=None, description="null: unlimited")
    runs_on: int = Field(description="active runs, without queued ones")
    locks: tuple[ShownLock, ...] = Field(default=(), description="locks in the project file")
    locked_for_operators: tuple[str, ...] = Field(
        default=(),
        description="fields that operators may not change; fields of an environment's config are "
        "also locked for operators, unless the owner has unlocked them",
    )
    freed_by_owner: tuple[str, ...] = Field(
        default=(), description="fields that the owner has unlocked for operators"
    )
    note: str


@operation(
    "limits.show",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="limits", tool="show_limits"),
)
def show_limits(_: NoArguments, caller: Caller) -> Limits:
    """Show what you may do: your role, the locks, the budget, and how many starts are left."""
    project = find_project(caller.folder)
    budget = caller.budget()
    free = project.file.tables.operators.may_set
    used = ActivityLog(caller.runs).starts_today()
    most = None if caller.is_owner else budget.starts_per_day
    return Limits(
        name=caller.name,
        role=caller.role.name.lower(),
        project=str(project.root),
        budget=budget,
        starts_today=used,
        starts_left=None if most is None else max(0, most - used),
        runs_on=_runs_on(caller),
        locks=tuple(
            ShownLock(
                field=each.field,
                value=each.value,
                environment=each.environment,
                author=each.author,
                reason=each.reason,
            )
            for each in project.file.tables.lock
        ),
        locked_for_operators=tuple(lock.field for lock in default_locks(free)),
        freed_by_owner=free,
        note=_NOTES[caller.role],
    )


def _runs_on(caller: Caller) -> int:
    if not caller.runs.is_dir():
        return 0
    index = Index(caller.runs)
    index.refresh()
    active = index.active()
    return sum(row.state is not RunState.QUEUED for row in active)
