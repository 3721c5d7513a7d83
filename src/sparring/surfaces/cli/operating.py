"""Implements the commands about operators: the tool server, plans, limits and the activity log."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.contracts.errors import InvalidInput, MissingPackage
from sparring.contracts.json import JsonObject
from sparring.operations.activity.reading import (
    ShowActivity,
    VerifyActivity,
    show_activity,
    verify_activity,
)
from sparring.operations.operation import Caller, NoArguments, Role
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
from sparring.projects import find_project
from sparring.settings.layers import assigned
from sparring.surfaces.cli.following import begin
from sparring.surfaces.cli.starting import owner
from sparring.surfaces.cli.tables import print_json, printable

_ROLES = {"viewer": Role.VIEWER, "operator": Role.OPERATOR}
_STYLES = {
    "done": "green",
    "refused": "yellow",
    "failed": "red",
    "requested": "dim",
}


def serve(name: str, role: str, project: str, runs: str | None) -> None:
    """Serve the tools over MCP until the client disconnects."""
    try:
        from sparring.surfaces.mcp import serve as serve_tools
    except ImportError as error:
        raise MissingPackage(f"{error}: pip install 'sparring[mcp]'") from error
    if sys.stdin.isatty():
        hint = (
            "this command is for MCP clients; `sparring mcp --print-config` shows how to set one up"
        )
        print(hint, file=sys.stderr)
    serve_tools(_operator(name, role, project, runs))


def print_config(name: str, role: str, project: str, runs: str | None) -> None:
    """Print the server's entry for the configuration file of an MCP client."""
    caller = _operator(name, role, project, runs)
    arguments = ["-m", "sparring", "mcp", "--project", str(caller.folder), "--as", name]
    arguments += [] if role == "operator" else ["--role", role]
    arguments += [] if runs is None else ["--runs", str(caller.runs.resolve())]
    server = {"command": sys.executable, "args": arguments}
    print(json.dumps({"mcpServers": {"sparring": server}}, indent=2))


def print_tools(role: str) -> None:
    """Print the role's tools as function schemas."""
    from sparring.surfaces.tools.catalogue import function_schemas

    print(json.dumps(function_schemas(_role(role)), indent=2))


def make_plan(
    request: JsonObject, assignments: list[str], runs: str | None, *, as_json: bool
) -> None:
    """Make a plan and print it."""
    plan = PlanRun.model_validate({**request, "settings": assigned(assignments, {})})
    _show_plan(plan_run(plan, owner(runs)), as_json=as_json)


def revise_plan(plan: str, field: str, value: str, runs: str | None, *, as_json: bool) -> None:
    """Make a plan from another with one field changed, and print it."""
    (parsed,) = assigned([f"value={value}"], {}).values()
    request = RevisePlan(plan=plan, field=field, value=parsed)
    _show_plan(revise(request, owner(runs)), as_json=as_json)


def start_plan(plan: str, runs: str | None, *, detach: bool, as_json: bool) -> None:
    """Start the run of a plan, and follow it unless detached."""
    caller = owner(runs)
    begin(start_planned(PlanQuery(plan=plan), caller), caller, detach=detach, as_json=as_json)


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
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
    table = Table(box=None, show_header=False, pad_edge=False)
    for what, value in rows:
        table.add_row(Text(what, style="dim"), printable(value))
    console = Console()
    console.print(table)
    console.print(Text(f"sparring plan start {plan.plan}", style="bold"), soft_wrap=True)


def _rollouts(cost: Cost) -> str:
    if cost.rollouts is None:
        return "as many as one pass over the cases needs"
    return f"{cost.rollouts:,}, at most {cost.rollouts_at_most:,}"


def limits(runs: str | None, *, as_json: bool) -> None:
    """Print the budget and the locks of operators."""
    caller = owner(runs)
    shown = show_limits(
        NoArguments(), Caller(Role.OPERATOR, caller.runs, "operator", caller.folder)
    )
    if as_json:
        print_json(shown)
        return
    console = Console()
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
    table = Table(box=None, show_header=False, pad_edge=False)
    for what, value in rows:
        table.add_row(Text(what, style="dim"), printable(str(value or "no limit")))
    console.print(table)


def show_log(query: JsonObject, runs: str | None, *, as_json: bool) -> None:
    """Print entries of the activity log."""
    activity = show_activity(ShowActivity.model_validate(query), owner(runs))
    if as_json:
        print_json(activity)
        return
    console = Console()
    if not activity.entries:
        console.print("the activity log is empty")
    for entry in activity.entries:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(entry.get("time", 0))))
        outcome = str(entry.get("outcome"))
        detail = entry.get("reason") or entry.get("result") or entry.get("request") or ""
        text = detail if isinstance(detail, str) else json.dumps(detail)
        line = Text.assemble(
            (f"{entry.get('number'):>5} {when} ", "dim"),
            f"{printable(str(entry.get('who')))} ",
            (f"{outcome} ", _STYLES.get(outcome, "")),
            (f"{printable(str(entry.get('verb')))} ", "bold"),
            printable(text)[:500],
        )
        console.print(line, soft_wrap=True)


def verify_log(expect: str, runs: str | None, *, as_json: bool) -> int:
    """Verify the activity log's hash chain, and return 0 if it is intact, else 1."""
    found = verify_activity(VerifyActivity(expect=expect), owner(runs))
    if as_json:
        print_json(found)
        return 0 if found.ok else 1
    for fault in found.faults:
        print(fault, file=sys.stderr)
    for request in found.unanswered:
        print(printable(f"no outcome was logged for: {request}"))
    status = "is intact" if found.ok else "is NOT intact"
    print(f"{found.file} {status}: {found.entries} entries, the last has digest {found.digest}")
    return 0 if found.ok else 1


def _operator(name: str, role: str, project: str, runs: str | None) -> Caller:
    folder = Path(project).resolve()
    if not folder.is_dir():
        raise InvalidInput(f"--project {folder}: there is no such folder")
    runs_folder = Path(runs) if runs is not None else find_project(folder).runs
    return Caller(_role(role), runs_folder, name, folder)


def _role(name: str) -> Role:
    if name not in _ROLES:
        raise InvalidInput(
            f"--role must be operator or viewer, not {name!r}; the owner uses the CLI"
        )
    return _ROLES[name]
