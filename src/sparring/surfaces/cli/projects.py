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

from sparring.contracts.environments import Catalogue
from sparring.contracts.errors import EnvironmentBroken
from sparring.contracts.result_text import Grid
from sparring.operations.chatting import ChatWith, prepare_chat
from sparring.operations.doctor import Finding, examine
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
from sparring.surfaces.cli.next_steps import after_env_test, after_init
from sparring.surfaces.cli.page import (
    FactList,
    Paragraph,
    Part,
    Styled,
    commands,
    print_json,
    printable,
    remark,
    show,
)

_MARKS = {"ok": ("✓", "green"), "optional": ("·", "dim"), "warning": ("!", "yellow"),
          "missing": ("✗", "red")}  # fmt: skip


def init(request: NewEnvironment, as_json: AsJson) -> None:
    """Write a new environment from a template."""
    written = new_environment(request, owner())
    if as_json:
        print_json(written)
        return
    paths = [Path(file) for file in written.files]
    documents = [path for path in paths if path.parent.name == f"{request.name}_documents"]
    lines = [path.name for path in paths if path not in documents]
    if documents:
        lines.append(f"{documents[0].parent.name}/ ({len(documents)} files)")
    wrote = [Paragraph(f"wrote {line}") for line in lines]
    show([*wrote, *commands(after_init(request.name))], Console())


@shows(list_environments)
def env_list(catalogue: Catalogue) -> Iterator[Part]:
    """Return the environments of the project, and the problems in its source."""
    rows = []
    for found in catalogue.environments:
        location = found.package or f"{_short(found.file)}:{found.line}"
        rows.append((found.name, found.description, location))
    if rows:
        heads = ("name", "description", "location")
        styles = {
            found.name: "dim" if found.needs_port else "bold" for found in catalogue.environments
        }
        yield Styled(Grid(heads, rows, texts=heads), styles)
    elif not catalogue.problems:
        yield Paragraph("no environments; `sparring init NAME` writes one")
    for problem in catalogue.problems:
        yield Paragraph(f"{_short(problem.file)}:{problem.line}: {problem.message}", "yellow")


@shows(show_environment)
def env_show(shown: ShownEnvironment) -> Iterator[Part]:
    """Return an environment's description, measures, services and config fields."""
    found, description = shown.found, shown.description
    if description.error:
        raise EnvironmentBroken(printable(description.error))
    yield Paragraph(f"  {_short(found.file)}:{found.line}", lead=found.name, lead_style="bold")
    yield Paragraph(found.description)
    facts = [
        ("measures", ", ".join(description.measures)),
        ("services", ", ".join(each.name for each in description.services)),
        ("sandbox", "needed" if description.needs_sandbox else ""),
        ("own settings", ", ".join(f"{k}={v}" for k, v in description.settings.items())),
    ]
    yield FactList([(label, value) for label, value in facts if value])
    if description.fields:
        rows = []
        for field in description.fields:
            default = "(required)" if field.required else json.dumps(field.default)
            rows.append((field.name, field.type, default, field.description))
        heads = ("config field", "type", "default", "")
        yield Grid(heads, rows, texts=heads)


@shows(
    try_environment,
    exit_code=100,
    waiting="testing the environment…",
    then=lambda tried: after_env_test(tried.environment) if tried.ok else {},
)
def env_test(tried: TriedEnvironment) -> Iterator[Part]:
    """Return the result of each check of an environment."""
    for check in tried.checks:
        mark, style = ("✓", "green") if check.ok else ("✗", "red")
        if check.ok and check.is_doubtful:
            mark, style = "!", "yellow"
        yield Paragraph(f" {check.what}  {check.detail}", lead=mark, lead_style=style)
    if tried.ok:
        yield from commands(after_env_test(tried.environment))


@shows(show_config)
def config_show(
    shown: ShownConfig,
    all: Annotated[
        bool, typer.Option("--all", help="Also show settings with default values.")
    ] = False,
) -> Iterator[Part]:
    """Return the settings that a run would have if it were started now."""
    rows = []
    for setting in shown.settings:
        if all or setting.source != "defaults" or setting.locked:
            reason = f" ({setting.reason})" if setting.reason else ""
            locked = f"{setting.locked_by}{reason}"
            rows.append((setting.name, _value_text(setting.value), setting.source, locked))
    heads = ("setting", "value", "from", "locked by")
    yield Grid(heads, rows, texts=heads)
    if hidden := len(shown.settings) - len(rows):
        yield remark(f"{hidden} more settings have their defaults; --all shows them")


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
        show(map(_finding, examination.findings), Console())
    if not examination.ok:
        raise typer.Exit(100)


def _finding(found: Finding) -> Paragraph:
    mark, style = _MARKS[found.standing]
    fix = f"\n→ {found.fix}" if found.fix else ""
    return Paragraph(f" {found.what}: {found.found}{fix}", lead=mark, lead_style=style)


@shows(fetch_model, waiting="building the model…")
def models_fetch(fetched: FetchedModel) -> Iterator[Part]:
    """Return the folder of a development model."""
    yield Paragraph(fetched.folder)


def _value_text(value: Any) -> str:
    """Return a setting as JSON. An empty table has all defaults, and is shown as `true`."""
    return "true" if value == {} else json.dumps(value)


def _short(file: str) -> str:
    """Return a path inside the current folder as relative, any other unchanged."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
