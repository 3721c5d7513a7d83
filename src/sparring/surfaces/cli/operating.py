"""The commands of an owner over AI operators: limits, plans, the activity log, tokens."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from sparring.operations.activity import (
    Activity,
    VerifiedActivity,
    show_activity,
    verify_activity,
)
from sparring.operations.operation import NoArguments, Role
from sparring.operations.permissions import show_limits
from sparring.operations.plans.estimating import Cost
from sparring.operations.plans.planning import Plan, plan_run, revise_plan
from sparring.operations.tokens import (
    CreatedToken,
    TokenLine,
    TokenList,
    create_token,
    list_tokens,
    revoke_token,
)
from sparring.surfaces.cli.commands import AsJson, Reader, shows
from sparring.surfaces.cli.page import FactList, Paragraph, Part, print_json, show

_STYLES = {
    "done": "green",
    "refused": "yellow",
    "failed": "red",
    "requested": "dim",
}


def _plan_parts(plan: Plan) -> Iterator[Part]:
    cost = plan.cost
    hours = "" if cost.hours is None else f"{cost.hours:g} hours: "
    rows = [
        ("plan", plan.plan),
        ("what", f"{plan.kind} {plan.environment} with {plan.model}"),
        ("settings", ", ".join(f"{name}={value}" for name, value in plan.settings.items())),
        ("steps", str(cost.steps or "one pass")),
        ("rollouts", _rollouts(cost)),
        ("takes", f"{hours}{cost.basis}"),
        ("missing", "; ".join(f"{each.what}: {each.fix}" for each in plan.missing) or "nothing"),
    ]
    yield FactList(rows)
    yield FactList([("start it", f"sparring plan start {plan.plan}")], are_commands=True)


plan_make = shows(plan_run)(_plan_parts)
plan_revise = shows(revise_plan)(_plan_parts)


def _rollouts(cost: Cost) -> str:
    if cost.rollouts is None:
        return "as many as one pass over the cases needs"
    return f"{cost.rollouts:,}, at most {cost.rollouts_at_most:,}"


def limits(_: NoArguments, caller: Reader, as_json: AsJson) -> None:
    """Print the budget and the locks of operators."""
    operator = replace(caller, role=Role.OPERATOR, name="operator")
    shown = show_limits(NoArguments(), operator)
    if as_json:
        print_json(shown.model_copy(update={"role": caller.role.name.lower(), "name": caller.name}))
        return
    budget = shown.budget
    rows = [
        ("steps per run", budget.steps),
        ("rollouts per run", budget.rollouts),
        ("hours per run", budget.hours),
        ("runs at once", f"{budget.runs_at_once} ({shown.runs_on} running)"),
        ("starts per day", f"{budget.starts_per_day} ({shown.starts_today} used)"),
        ("unlocked by may_set", ", ".join(shown.freed_by_owner) or "nothing"),
        ("locked for operators", ", ".join(shown.locked_for_operators)),
        ("locked for everybody", ", ".join(each.field for each in shown.locks) or "nothing"),
    ]
    show([FactList([(what, str(value or "no limit")) for what, value in rows])], Console())


@shows(show_activity)
def activity_show(activity: Activity) -> Iterator[Part]:
    """Return entries of the activity log."""
    if not activity.entries:
        yield Paragraph("the activity log is empty")
    for entry in activity.entries:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(entry.get("time", 0))))
        outcome = str(entry.get("outcome"))
        detail = entry.get("reason") or entry.get("result") or entry.get("request") or ""
        text = detail if isinstance(detail, str) else json.dumps(detail)
        head = f"{entry.get('number'):>5} {when} {entry.get('who')} {outcome} {entry.get('verb')} "
        yield Paragraph(text[:500], lead=head, lead_style=_STYLES.get(outcome, ""))


@shows(verify_activity, exit_code=1)
def activity_verify(found: VerifiedActivity) -> Iterator[Part]:
    """Return whether the activity log's hash chain is intact."""
    for fault in found.faults:
        print(fault, file=sys.stderr)
    for request in found.unanswered:
        yield Paragraph(f"no outcome was logged for: {request}")
    status = "is intact" if found.ok else "is NOT intact"
    entries = f"{found.entries} entries, the last has digest {found.digest}"
    yield Paragraph(f"{found.file} {status}: {entries}")


@shows(create_token)
def token_create(made: CreatedToken) -> Iterator[Part]:
    """Return a new token, alone on standard output."""
    yield Paragraph(made.token)
    print(f"token of {made.name} ({made.role}); it is not shown again", file=sys.stderr)


@shows(list_tokens)
def token_list(found: TokenList) -> Iterator[Part]:
    """Return the tokens of the project."""
    for each in found.tokens:
        expires = "never"
        if each.expires is not None:
            expires = time.strftime("%Y-%m-%d", time.localtime(each.expires))
        line = f"{each.id}  {each.state:8} {each.role:9} {each.name}  expires {expires}"
        yield Paragraph(line)


@shows(revoke_token)
def token_revoke(line: TokenLine) -> Iterator[Part]:
    """Return the token that was revoked."""
    yield Paragraph(f"{line.id} of {line.name} is revoked")
