"""The commands `sparring init`, `env …`, `config …`, `models …`, `chat` and `doctor`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.contracts.environments import Catalogue
from sparring.contracts.errors import EnvironmentBroken
from sparring.operations.chatting import ChatWith, prepare_chat
from sparring.operations.doctor import examine
from sparring.operations.environments import (
    NewEnvironment,
    ShownConfig,
    ShownEnvironment,
    TriedEnvironment,
    list_environments,
    new_environment,
    show_config,
    show_environment,
    try_environment,
)
from sparring.operations.models import FetchedModel, fetch_model
from sparring.operations.operation import Caller, NoArguments, Role
from sparring.surfaces.cli.callers import owner
from sparring.surfaces.cli.commands import AsJson, Owner, RunsFolder, shows
from sparring.surfaces.cli.next_steps import after_env_test, after_init, show_next_steps
from sparring.surfaces.cli.tables import grid, print_json, printable

_MARKS = {"ok": ("✓", "green"), "optional": ("·", "dim"), "warning": ("!", "yellow"),
          "missing": ("✗", "red")}  # fmt: skip


def init(request: NewEnvironment, as_json: AsJson) -> None:
    """Write a new environment from a template."""
    written = new_environment(request, owner())
    if as_json:
        print_json(written)
        return
    console = Console()
    paths = [Path(file) for file in written.files]
    documents = [path for path in paths if path.parent.name == f"{request.name}_documents"]
    for path in paths:
        if path not in documents:
            console.print(Text(f"wrote {path.name}"), soft_wrap=True)
    if documents:
        console.print(Text(f"wrote {documents[0].parent.name}/ ({len(documents)} files)"))
    show_next_steps(after_init(request.name), console)


@shows(list_environments)
def env_list(catalogue: Catalogue, console: Console) -> None:
    """Print the environments of the project, and the problems in its source."""
    table = grid("name", "description", "location")
    for each in catalogue.environments:
        location = each.package or f"{_short(each.file)}:{each.line}"
        table.add_row(
            Text(printable(each.name), style="dim" if each.needs_port else "bold"),
            Text(printable(each.description)),
            Text(location, style="dim"),
        )
    if catalogue.environments:
        console.print(table)
    elif not catalogue.problems:
        console.print("no environments; `sparring init NAME` writes one")
    for problem in catalogue.problems:
        location = f"{_short(problem.file)}:{problem.line}"
        console.print(Text(printable(f"{location}: {problem.message}"), style="yellow"))


@shows(show_environment)
def env_show(shown: ShownEnvironment, console: Console) -> None:
    """Print an environment's description, measures, services and config fields."""
    found, description = shown.found, shown.description
    if description.error:
        raise EnvironmentBroken(printable(description.error))
    head = Text.assemble((printable(found.name), "bold"), f"  {_short(found.file)}:{found.line}")
    console.print(head, soft_wrap=True)
    console.print(Text(printable(found.description)))
    facts = [
        ("measures", ", ".join(description.measures)),
        ("services", ", ".join(each.name for each in description.services)),
        ("sandbox", "needed" if description.needs_sandbox else ""),
        ("own settings", ", ".join(f"{k}={v}" for k, v in description.settings.items())),
    ]
    for label, value in facts:
        if value:
            console.print(Text.assemble((f"{label}: ", "dim"), printable(value)))
    if description.fields:
        table = grid("config field", "type", "default", "")
        for field in description.fields:
            default = "(required)" if field.required else json.dumps(field.default)
            cells = (field.name, field.type, default, field.description)
            table.add_row(*(Text(printable(cell)) for cell in cells))
        console.print(table)


@shows(try_environment, exit_code=100, waiting="testing the environment…")
def env_test(tried: TriedEnvironment, console: Console) -> None:
    """Print the result of each check of an environment."""
    for check in tried.checks:
        mark = ("✓", "green") if check.ok else ("✗", "red")
        if check.ok and check.is_doubtful:
            mark = ("!", "yellow")
        line = Text.assemble(mark, f" {printable(check.what)}")
        console.print(line + Text(f"  {printable(check.detail)}", style="dim"))
    if tried.ok:
        show_next_steps(after_env_test(tried.environment), console)


@shows(show_config)
def config_show(
    shown: ShownConfig,
    console: Console,
    all: Annotated[
        bool, typer.Option("--all", help="Also show settings with default values.")
    ] = False,
) -> None:
    """Print the settings that a run would have if it were started now."""
    table = grid("setting", "value", "from", "locked by")
    rows = [each for each in shown.settings if all or each.source != "defaults" or each.locked]
    for each in rows:
        reason = f" ({each.reason})" if each.reason else ""
        table.add_row(
            each.name,
            Text(printable(_value_text(each.value)), style="bold"),
            Text(printable(each.source), style="dim"),
            Text(printable(f"{each.locked_by}{reason}"), style="yellow"),
        )
    console.print(table)
    if hidden := len(shown.settings) - len(rows):
        console.print(
            Text(f"{hidden} more settings have their defaults; --all shows them", style="dim")
        )


def chat(request: ChatWith, caller: Owner) -> None:
    """Chat with an agent in a child process, and exit with its exit code."""
    spec = prepare_chat(request, caller)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(spec.model_dump_json())
        file.flush()
        command = [sys.executable, "-m", "sparring.jobs.chat", file.name]
        with subprocess.Popen(command) as chatting, _left_to_the_child(signal.SIGINT):
            raise typer.Exit(chatting.wait())


@contextmanager
def _left_to_the_child(number: signal.Signals) -> Iterator[None]:
    """Do nothing on a signal that the terminal also sends to the child process."""
    before = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(number, before)


def doctor(runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Print the findings about this machine. Exit with 100 if something required is missing."""
    with Console(stderr=True).status("checking…"):
        here = Path.cwd()
        # Not `owner()`: it reads sparring.toml, which may be broken.
        caller = Caller(Role.OWNER, Path(runs or "runs"), folder=here)
        examination = examine(NoArguments(), caller)
    if as_json:
        print_json(examination)
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        for each in examination.findings:
            mark, style = _MARKS[each.standing]
            found = Text(printable(each.found))
            if each.fix:
                found.append(f"\n{printable(each.fix)}", style="dim")
            table.add_row(Text(mark, style=style), each.what, found)
        Console().print(table)
    if not examination.ok:
        raise typer.Exit(100)


@shows(fetch_model, waiting="building the model…")
def models_fetch(fetched: FetchedModel, _: Console) -> None:
    """Print the folder of a development model."""
    print(fetched.folder)


def _value_text(value: Any) -> str:
    """Return a setting as JSON. An empty table has all defaults, and is shown as `true`."""
    return "true" if value == {} else json.dumps(value)


def _short(file: str) -> str:
    """Return a path inside the current folder as relative, any other unchanged."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
