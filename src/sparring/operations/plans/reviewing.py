"""Operations that list, show and refuse plans."""

from __future__ import annotations

from pydantic import Field

from sparring.contracts.foreign import ForeignText, MixedTable
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.plans.planning import Plan, PlanQuery, describe_plan
from sparring.operations.plans.store import Plans, StoredPlan


class ListPlans(Frozen):
    """The number of plans to list."""

    count: int = Field(default=50, ge=1, le=500, description="maximum number of plans")


class PlanLine(Frozen):
    """One plan of a list."""

    plan: str
    author: str
    role: str
    created: float
    kind: str
    environment: str
    settings: MixedTable = Field(default_factory=dict, description="settings in the request")
    revises: str = ""
    run: str = Field(default="", description="id of the run that it started")
    refused: ForeignText = Field(default="", description="the owner's reason for refusing it")
    is_refused: bool = False


class PlanList(Frozen):
    """Plans, newest first."""

    plans: tuple[PlanLine, ...]


class RefusePlan(PlanQuery):
    """The plan to refuse."""

    reason: str = Field(default="", max_length=500, description="shown to the plan's author")


@operation("plan.list", role=Role.OPERATOR, changes_state=False)
def list_plans(request: ListPlans, caller: Caller) -> PlanList:
    """List plans, newest first. The owner sees all plans, an operator only its own."""
    author = "" if caller.is_owner else caller.name
    plans = Plans(caller.runs)
    return PlanList(plans=tuple(_line(plans, each) for each in plans.newest(author, request.count)))


@operation("plan.show", role=Role.OPERATOR, changes_state=False)
def show_plan(request: PlanQuery, caller: Caller) -> Plan:
    """Show a plan: its settings, its cost, and what is missing. Fails if it is out of date."""
    return describe_plan(request.plan, caller)


@operation("plan.refuse", role=Role.OWNER, changes_state=True)
def refuse_plan(request: RefusePlan, caller: Caller) -> PlanLine:
    """Refuse a plan: it can no longer be started, and its author sees the reason."""
    plans = Plans(caller.runs)
    stored = plans.read(request.plan)
    plans.refuse(stored.plan, caller.name, request.reason)
    return _line(plans, stored)


def _line(plans: Plans, stored: StoredPlan) -> PlanLine:
    refusal = plans.refusal_of(stored.plan)
    return PlanLine(
        plan=stored.plan,
        author=stored.author,
        role=stored.role,
        created=stored.created,
        kind=str(stored.request.get("kind") or ""),
        environment=str(stored.request.get("environment") or ""),
        settings=dict(stored.request.get("settings") or {}),
        revises=stored.revises,
        run=plans.started_as(stored.plan),
        refused=refusal or "",
        is_refused=refusal is not None,
    )
