"""`sparring init`, `env`, `config`, `chat`, `doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.operations.chatting import ChatWith, prepare_chat
from sparring.operations.doctor import examine
from sparring.operations.environments import (
    ConfigQuery,
    EnvironmentQuery,
    NewEnvironment,
    ShownSetting,
    TryEnvironment,
    list_environments,
    new_environment,
    show_environment,
    try_environment,
)
from sparring.operations.environments import show_config as show_settings
from sparring.operations.operation import Caller, Nothing, Role
from sparring.settings.assignments import assigned
from sparring.surfaces.cli.next_steps import after_env_test, after_init, show_next_steps
from sparring.surfaces.cli.starting import owner
from sparring.surfaces.cli.tables import printable

_MARKS = {"ok": ("✓", "green"), "optional": ("·", "dim"), "warning": ("!", "yellow"),
          "missing": ("✗", "red")}  # fmt: skip


def init(name: str, start: str, *, as_json: bool) -> None:
    written = new_environment(NewEnvironment(name=name, start=start), owner())
    if as_json:
        print(written.model_dump_json())
        return
    console = Console()
    beside = [Path(file) for file in written.files if Path(file).parent.name == f"{name}_documents"]
    for file in written.files:
        if Path(file) not in beside:
            console.print(Text(f"wrote {Path(file).name}"), soft_wrap=True)
    if beside:
        console.print(Text(f"wrote {beside[0].parent.name}/ ({len(beside)} files)"))
    show_next_steps(after_init(name), console)


def list_all(*, as_json: bool) -> None:
    catalogue = list_environments(Nothing(), owner())
    if as_json:
        print(catalogue.model_dump_json())
        return
    console = Console()
    table = _table("name", "what it is", "where")
    for each in catalogue.environments:
        place = each.package or f"{_short(each.file)}:{each.line}"
        style = "dim" if each.needs_port else "bold"
        table.add_row(
            Text(printable(each.name), style=style),
            printable(each.description),
            Text(place, style="dim"),
        )
    if catalogue.environments:
        console.print(table)
    elif not catalogue.problems:
        console.print("no environments here; `sparring init NAME` writes one")
    for problem in catalogue.problems:
        place = f"{_short(problem.file)}:{problem.line}"
        console.print(Text(printable(f"{place}: {problem.message}"), style="yellow"))


def show(name: str, *, as_json: bool) -> None:
    shown = show_environment(EnvironmentQuery(environment=name), owner())
    if as_json:
        print(shown.model_dump_json())
        return
    console = Console()
    found, told = shown.found, shown.description
    head = Text.assemble((printable(found.name), "bold"), f"  {_short(found.file)}:{found.line}")
    console.print(head, soft_wrap=True)
    console.print(printable(found.description))
    if told.error:
        console.print(Text(printable(told.error), style="red"))
        return
    facts = [
        ("measures", ", ".join(told.measures)),
        ("services", ", ".join(each.name for each in told.services)),
    ]
    facts += [("sandbox", "needed" if told.needs_sandbox else "")]
    facts += [("own settings", ", ".join(f"{k}={v}" for k, v in told.settings.items()))]
    for what, value in facts:
        if value:
            console.print(Text.assemble((f"{what}: ", "dim"), printable(value)))
    if told.fields:
        table = _table("config field", "type", "default", "")
        for field in told.fields:
            default = "(required)" if field.required else json.dumps(field.default)
            table.add_row(field.name, field.type, printable(default), printable(field.description))
        console.print(table)


def try_out(name: str, model: str, cases: int, given: list[str], *, as_json: bool) -> None:
    request = TryEnvironment(
        environment=name, model=model, cases=cases, settings=assigned(given, {})
    )
    with Console(stderr=True).status(f"trying {name}…"):
        tried = try_environment(request, owner())
    if as_json:
        print(tried.model_dump_json())
    else:
        console = Console()
        for check in tried.checks:
            mark = ("✓", "green") if check.ok else ("✗", "red")
            if check.ok and check.is_doubtful:
                mark = ("!", "yellow")
            line = Text.assemble(mark, f" {printable(check.what)}")
            console.print(line + Text(f"  {printable(check.detail)}", style="dim"))
        if tried.ok:
            show_next_steps(after_env_test(tried.environment), console)
    if not tried.ok:
        sys.exit(100)


def show_config(
    name: str, kind: str, given: list[str], *, with_defaults: bool, as_json: bool
) -> None:
    query = {"environment": name, "kind": kind, "settings": assigned(given, {})}
    shown = show_settings(ConfigQuery.model_validate(query), owner())
    if as_json:
        print(shown.model_dump_json())
        return
    console = Console()
    table = _table("setting", "value", "from", "locked by")
    wanted = [each for each in shown.settings if with_defaults or _is_worth_showing(each)]
    for each in wanted:
        reason = f" ({each.reason})" if each.reason else ""
        table.add_row(
            each.name,
            Text(printable(_shown(each.value)), style="bold"),
            Text(printable(each.source), style="dim"),
            Text(printable(f"{each.locked_by}{reason}"), style="yellow"),
        )
    console.print(table)
    if hidden := len(shown.settings) - len(wanted):
        console.print(Text(f"{hidden} defaults besides: --all shows them", style="dim"))


def chat(target: str, model: str | None, given: list[str], runs: str | None) -> int:
    values: dict[str, Any] = {"model": model} if model else {}
    caller = owner(runs)
    spec = prepare_chat(ChatWith(target=target, settings=assigned(given, values)), caller)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(spec.model_dump_json())
        file.flush()
        command = [sys.executable, "-m", "sparring.worker.chat", file.name]
        return subprocess.run(command, check=False).returncode


def doctor(runs: str | None, *, as_json: bool) -> int:
    with Console(stderr=True).status("looking…"):
        here = Path.cwd()
        caller = Caller(Role.OWNER, Path(runs or "runs"), folder=here)  # the file may be broken
        examination = examine(Nothing(), caller)
    if as_json:
        print(examination.model_dump_json())
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        for each in examination.findings:
            mark, style = _MARKS[each.standing]
            found = Text(printable(each.found))
            if each.fix:
                found.append(f"\n{printable(each.fix)}", style="dim")
            table.add_row(Text(mark, style=style), each.what, found)
        Console().print(table)
    return 0 if examination.ok else 100


def _shown(value: Any) -> str:
    """An empty table is one that is there, with its own defaults: `lora = true`."""
    return "true" if value == {} else json.dumps(value)


def _is_worth_showing(setting: ShownSetting) -> bool:
    return setting.source != "defaults" or setting.locked


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == columns[0])
    return table


def _short(file: str) -> str:
    """From here, where it lies below here."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
