"""What the commands about operators do: serving tools, showing limits and the record."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.contracts.errors import InvalidInput, MissingPackage
from sparring.operations.operation import Caller, Nothing, Role
from sparring.operations.permissions import show_limits
from sparring.operations.plans.estimating import Cost
from sparring.operations.plans.planning import (
    Plan,
    PlanQuery,
    PlanRun,
    RevisePlan,
    plan_run,
    start_planned,
)
from sparring.operations.plans.planning import revise_plan as revise
from sparring.operations.record.reading import ShowTrail, VerifyTrail, show_trail, verify_trail
from sparring.projects import find_project
from sparring.settings.assignments import assigned
from sparring.surfaces.cli.following import begin
from sparring.surfaces.cli.starting import owner
from sparring.surfaces.cli.tables import printable

_ROLES = {"viewer": Role.VIEWER, "operator": Role.OPERATOR}
_STYLES = {"done": "green", "refused": "yellow", "failed": "red", "asked": "dim"}


def serve(name: str, role: str, project: str, runs: str | None) -> None:
    try:
        from sparring.surfaces.mcp import serve as serve_tools
    except ImportError as error:
        raise MissingPackage(f"{error}: pip install 'sparring[mcp]'") from error
    if sys.stdin.isatty():
        told = "an MCP client is to start this; `sparring mcp --print-config` says how"
        print(told, file=sys.stderr)
    serve_tools(_operator(name, role, project, runs))


def print_config(name: str, role: str, project: str, runs: str | None) -> None:
    """In the form that most clients keep in a file."""
    caller = _operator(name, role, project, runs)
    arguments = ["-m", "sparring", "mcp", "--project", str(caller.folder), "--as", name]
    arguments += [] if role == "operator" else ["--role", role]
    arguments += [] if runs is None else ["--runs", str(caller.runs.resolve())]
    server = {"command": sys.executable, "args": arguments}
    print(json.dumps({"mcpServers": {"sparring": server}}, indent=2))


def print_tools(role: str) -> None:
    from sparring.surfaces.tools.catalogue import function_schemas

    print(json.dumps(function_schemas(_role(role)), indent=2))


def make_plan(
    request: dict[str, Any], given: list[str], runs: str | None, *, as_json: bool
) -> None:
    asked = PlanRun.model_validate({**request, "settings": assigned(given, {})})
    _show_plan(plan_run(asked, owner(runs)), as_json=as_json)


def revise_plan(plan: str, field: str, value: str, runs: str | None, *, as_json: bool) -> None:
    (read,) = assigned([f"value={value}"], {}).values()
    asked = RevisePlan(plan=plan, field=field, value=read)
    _show_plan(revise(asked, owner(runs)), as_json=as_json)


def start_plan(plan: str, runs: str | None, *, detach: bool, as_json: bool) -> None:
    caller = owner(runs)
    begin(start_planned(PlanQuery(plan=plan), caller), caller, detach=detach, as_json=as_json)


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print(plan.model_dump_json())
        return
    cost = plan.cost
    hours = "" if cost.hours is None else f"{cost.hours:g} hours, by what "
    rows = [
        ("plan", plan.plan),
        ("what", f"{plan.kind} {plan.environment} with {plan.model}"),
        ("settings", ", ".join(f"{name}={value}" for name, value in plan.settings.items())),
        ("steps", str(cost.steps or "one pass")),
        ("rollouts", _rollouts(cost)),
        ("takes", f"{hours}{cost.basis}"),
        ("missing", "; ".join(f"{each.what}: {each.fix}" for each in plan.missing) or "nothing"),
    ]
    table = Table(box=None, show_header=False, pad_edge=False)
    for what, value in rows:
        table.add_row(Text(what, style="dim"), printable(value))
    console = Console()
    console.print(table)
    console.print(Text(f"sparring plan start {plan.plan}", style="bold"), soft_wrap=True)


def _rollouts(cost: Cost) -> str:
    if cost.rollouts is None:
        return "as many as one pass over the cases takes"
    return f"{cost.rollouts:,}, and at most {cost.rollouts_at_most:,}"


def limits(runs: str | None, *, as_json: bool) -> None:
    caller = owner(runs)
    shown = show_limits(Nothing(), Caller(Role.OPERATOR, caller.runs, "operator", caller.folder))
    if as_json:
        print(shown.model_dump_json())
        return
    console = Console()
    budget = shown.budget
    rows = [
        ("steps of a run", budget.steps),
        ("rollouts of a run", budget.rollouts),
        ("hours of a run", budget.hours),
        ("runs at once", f"{budget.runs_at_once} ({shown.runs_on} on now)"),
        ("starts a day", f"{budget.starts_per_day} ({shown.starts_today} used)"),
        ("may set, freed by you", ", ".join(shown.freed_by_owner) or "nothing besides"),
        ("locked for operators", ", ".join(shown.locked_for_operators)),
        ("locked for everybody", ", ".join(each.field for each in shown.locks) or "nothing"),
    ]
    table = Table(box=None, show_header=False, pad_edge=False)
    for what, value in rows:
        table.add_row(Text(what, style="dim"), printable(str(value or "no limit")))
    console.print(table)


def show_audit(query: dict[str, Any], runs: str | None, *, as_json: bool) -> None:
    trail = show_trail(ShowTrail.model_validate(query), owner(runs))
    if as_json:
        print(trail.model_dump_json())
        return
    console = Console()
    if not trail.entries:
        console.print("nothing is on record here yet")
    for each in trail.entries:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(each.get("time", 0))))
        outcome = str(each.get("outcome"))
        told = each.get("reason") or each.get("result") or each.get("asked") or ""
        words = told if isinstance(told, str) else json.dumps(told)
        line = Text.assemble(
            (f"{each.get('number'):>5} {when} ", "dim"),
            f"{printable(str(each.get('who')))} ",
            (f"{outcome} ", _STYLES.get(outcome, "")),
            (f"{printable(str(each.get('verb')))} ", "bold"),
            printable(words)[:500],
        )
        console.print(line, soft_wrap=True)


def verify_audit(expect: str, runs: str | None, *, as_json: bool) -> int:
    found = verify_trail(VerifyTrail(expect=expect), owner(runs))
    if as_json:
        print(found.model_dump_json())
        return 0 if found.ok else 1
    for fault in found.faults:
        print(fault, file=sys.stderr)
    for each in found.unanswered:
        print(printable(f"nobody knows what came of: {each}"))
    standing = "is whole" if found.ok else "is NOT whole"
    print(f"{found.file} {standing}: {found.entries} entries, the last has digest {found.digest}")
    return 0 if found.ok else 1


def _operator(name: str, role: str, project: str, runs: str | None) -> Caller:
    folder = Path(project).resolve()
    if not folder.is_dir():
        raise InvalidInput(f"--project {folder}: there is no such folder")
    place = Path(runs) if runs is not None else find_project(folder).runs
    return Caller(_role(role), place, name, folder)


def _role(name: str) -> Role:
    if name not in _ROLES:
        raise InvalidInput(f"--role is operator or viewer, not {name!r}; owners use the CLI itself")
    return _ROLES[name]
