"""Operations on environments: list, describe, test and create them, and show their settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sparring.contracts.command_line import ENVIRONMENT, OnCommandLine
from sparring.contracts.environments import Catalogue, EnvironmentDescription, FoundEnvironment
from sparring.contracts.errors import InvalidInput, SettingError, SparringError
from sparring.contracts.foreign import MIXED, ForeignText, MixedTable
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import Frozen, Table
from sparring.installed import require_extra
from sparring.operations.operation import Caller, Forms, NoArguments, Role, operation
from sparring.operations.resolution import RunSettings, resolve_run
from sparring.projects import find_project
from sparring.projects.templates import write_environment
from sparring.settings.fields import describe_settings, known_names, types_of_settings
from sparring.settings.locks import Lock


class EnvironmentQuery(Frozen):
    """One environment."""

    environment: Annotated[str, ENVIRONMENT] = Field(description="the environment's name")


class ConfigQuery(EnvironmentQuery):
    """The kind of run whose settings are shown, and changes to preview."""

    kind: Literal["train", "eval"] = Field(default="train", description="kind of run")
    settings: Table = Field(default_factory=dict, description="changes to preview")


class ShownSetting(Frozen):
    """One resolved setting: its value, its source, its lock."""

    name: Annotated[str, MIXED]
    value: Annotated[Any, MIXED]
    type: str = Field(default="", description="type of the value; empty for fields of tables")
    source: str
    locked: bool = False
    locked_by: str = ""
    reason: str = ""
    description: str = ""
    words: ForeignText = Field(
        default="", description="description of a config field, written by the environment"
    )


class ShownEnvironment(Frozen):
    """An environment, and the fields of its config."""

    found: FoundEnvironment
    description: EnvironmentDescription
    config: tuple[ShownSetting, ...] = Field(
        default=(), description="fields of its config, with values and locks"
    )


class ShownConfig(Frozen):
    """All settings of a run, with sources and locks."""

    environment: str
    kind: str
    file: str
    settings: tuple[ShownSetting, ...]

    def short(self) -> ConfigTable:
        """Return only the values, in a table of changeable and a table of locked settings."""
        values = {
            each.name: "unset" if each.value is None else each.value for each in self.settings
        }
        locked = {each.name: values[each.name] for each in self.settings if each.locked}
        free = {name: value for name, value in values.items() if name not in locked}
        return ConfigTable(
            environment=self.environment, kind=self.kind, may_change=free, locked=locked
        )


class ConfigTable(Frozen):
    """Values of settings, without sources."""

    environment: str
    kind: str
    may_change: MixedTable
    locked: MixedTable


class TryEnvironment(EnvironmentQuery):
    """The environment to test, the model that plays, and the number of cases."""

    model: str = Field(
        default="tiny", description="model that plays; tiny has random weights and is fast"
    )
    cases: int = Field(default=2, ge=1, le=100, description="cases to play")
    settings: Table = Field(default_factory=dict)


class Tried(Frozen):
    """The result of one check of a test."""

    what: str
    ok: bool
    detail: str = ""
    is_doubtful: bool = Field(default=False, description="true if the result needs a closer look")


class TriedEnvironment(Frozen):
    """The results of a test."""

    environment: str
    ok: bool
    checks: tuple[Tried, ...]


class NewEnvironment(Frozen):
    """The environment to create."""

    name: str = Field(description="name of the new environment, as in my_agent")
    start: Annotated[str, OnCommandLine("--from")] = Field(
        default="tool",
        description="template. tool: questions that a tool answers. documents: questions about a "
        "folder of documents. game: a game of several turns",
    )


class WrittenEnvironment(Frozen):
    """The files that were written."""

    files: tuple[str, ...]


@operation(
    "env.list",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="env list", tool="list_environments"),
)
def list_environments(_: NoArguments, caller: Caller) -> Catalogue:
    """List the environments of the project and of installed packages, without running them."""
    return find_project(caller.folder).catalogue()


@operation(
    "env.show",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="env show", tool="describe_environment"),
)
def show_environment(request: EnvironmentQuery, caller: Caller) -> ShownEnvironment:
    """Describe an environment and the fields of its config, with values and locks."""
    project = find_project(caller.folder)
    found = project.find(request.environment, by_name_only=not caller.is_owner)
    description = project.describe(found, is_owner=caller.is_owner)
    if description.error:
        return ShownEnvironment(found=found, description=description)
    try:
        run_settings = resolve_run(request.environment, "train", {}, caller)
    except SettingError:  # such as a required field that is not set
        return ShownEnvironment(found=found, description=description)
    own = [each for each in _shown(run_settings) if each.name.startswith("config.")]
    return ShownEnvironment(found=found, description=description, config=tuple(own))


@operation(
    "config.show",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="config show", tool="show_config"),
)
def show_config(request: ConfigQuery, caller: Caller) -> ShownConfig:
    """Show every setting of a run of this environment, with its source and its lock.

    A short answer has only the values, in a table of settings that you may change and a table of
    locked settings. A full answer adds each setting's type, description, source and lock.
    """
    run_settings = resolve_run(request.environment, request.kind, request.settings, caller)
    return ShownConfig(
        environment=run_settings.name,
        kind=request.kind,
        file=str(run_settings.project.root / run_settings.project.file.document.name),
        settings=tuple(_shown(run_settings)),
    )


@operation("env.test", role=Role.OWNER, changes_state=True, forms=Forms(cli="env test"))
def try_environment(request: TryEnvironment, caller: Caller) -> TriedEnvironment:
    """Test an environment: load it, play a few of its cases, and judge the rollouts."""
    require_extra("local", "`env test`")
    training_only = set(known_names("train")) - set(known_names("eval"))
    play = {name: value for name, value in request.settings.items() if name not in training_only}
    run_settings = resolve_run(request.environment, "eval", play, caller)
    job = {
        "target": run_settings.environment.found.target,
        "config": run_settings.checked.config,
        "play": run_settings.checked.play.model_dump(mode="json"),
        "model": request.model,
        "cases": request.cases,
        **_warm_start(request, caller),
    }
    process = subprocess.run(
        [sys.executable, "-m", "sparring.jobs.env_test"],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = process.stdout.strip().splitlines()
    if process.returncode or not lines:
        raise SparringError(f"the test of {run_settings.name} failed to run; see the error above")
    checks = tuple(Tried.model_validate(each) for each in json.loads(lines[-1]))
    return TriedEnvironment(
        environment=run_settings.name, ok=all(each.ok for each in checks), checks=checks
    )


def _warm_start(request: TryEnvironment, caller: Caller) -> Table:
    """Return the model to train, and the warm start's file of demonstrations or ""."""
    run_settings = resolve_run(request.environment, "train", request.settings, caller)
    settings = run_settings.training
    source = settings.warm_start.source if settings.warm_start else ""
    return {
        "to_train": run_settings.checked.model.model,
        "demonstrations": source if Path(source).is_file() else "",
    }


@operation("env.new", role=Role.OWNER, changes_state=True, forms=Forms(cli="init"))
def new_environment(request: NewEnvironment, caller: Caller) -> WrittenEnvironment:
    """Write a working environment, its test and, if there is none yet, a project file."""
    folder = Path(caller.folder).resolve()
    if not request.name.isidentifier() or not request.name.islower():
        raise InvalidInput(
            f"{request.name!r} cannot be a name: use lowercase letters, digits and _, beginning "
            "with a letter (my_agent)"
        )
    if iskeyword(request.name) or _hides_a_module(request.name, folder):
        raise InvalidInput(
            f"{request.name} is a keyword or the name of an installed module; choose another name, "
            f"such as my_{request.name}"
        )
    written = write_environment(folder, request.name, request.start)
    return WrittenEnvironment(files=tuple(map(str, written)))


def _hides_a_module(name: str, folder: Path) -> bool:
    """Whether a file of this name in the folder would be imported instead of an existing module."""
    try:
        found = find_spec(name)
    except ValueError:  # a running module without a spec, such as __main__
        return True
    return found is not None and Path(found.origin or "").parent != folder


def _shown(run_settings: RunSettings) -> Iterator[ShownSetting]:
    about, types = describe_settings(run_settings.kind), types_of_settings(run_settings.kind)
    foreign = {
        f"config.{each.name}": each.description
        for each in run_settings.environment.description.fields
    }
    for name, setting in sorted(run_settings.resolved.settings.items()):
        yield ShownSetting(
            name=name,
            value=setting.value,
            type=types.get(name, ""),
            source=setting.source,
            **_lock_of(setting.lock),
            description=about.get(name, about.get(name.partition(".")[0], "")),
            words=foreign.get(name, ""),
        )


def _lock_of(lock: Lock | None) -> JsonObject:
    if lock is None:
        return {}
    by = f"{lock.author}, {lock.source}" if lock.author else lock.source
    return {"locked": True, "locked_by": by, "reason": lock.reason}
