"""Environments of a project: listing, describing, trying, writing a new one; its settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sparring.contracts.environments import Catalogue, EnvironmentDescription, FoundEnvironment
from sparring.contracts.errors import InvalidInput, SettingError, SparringError
from sparring.contracts.foreign import MIXED, ForeignText, MixedTable
from sparring.contracts.specs import Frozen, PlaySettings
from sparring.contracts.training import TrainSettings
from sparring.operations.operation import Caller, Forms, Nothing, Role, operation
from sparring.operations.settling import Settled, settle
from sparring.projects import find_project
from sparring.projects.beginning import write_environment
from sparring.settings.fields import describe_settings, types_of_settings
from sparring.settings.locks import Lock


class EnvironmentQuery(Frozen):
    environment: str = Field(description="its name")


class ConfigQuery(EnvironmentQuery):
    kind: Literal["train", "eval"] = Field(default="train", description="of which kind of run")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="what would be asked for, to see what it would be"
    )


class ShownSetting(Frozen):
    """One resolved value: what it is, where it came from, who locked it."""

    name: Annotated[str, MIXED]
    value: Annotated[Any, MIXED]
    type: str = Field(default="", description="what it may be, where it is not the config's")
    source: str
    locked: bool = False
    locked_by: str = ""
    reason: str = ""
    description: str = ""
    words: ForeignText = Field(default="", description="the environment's own, of its config")


class ShownEnvironment(Frozen):
    found: FoundEnvironment
    description: EnvironmentDescription
    config: tuple[ShownSetting, ...] = Field(
        default=(), description="what the fields of its config are now, and who locked them"
    )


class ShownConfig(Frozen):
    environment: str
    kind: str
    file: str
    settings: tuple[ShownSetting, ...]

    def short(self) -> ConfigTable:
        """Values alone: those that one may change, and those that are locked."""
        told = {each.name: "unset" if each.value is None else each.value for each in self.settings}
        locked = {each.name: told[each.name] for each in self.settings if each.locked}
        values = {name: value for name, value in told.items() if name not in locked}
        return ConfigTable(
            environment=self.environment, kind=self.kind, may_change=values, locked=locked
        )


class ConfigTable(Frozen):
    """Settings in few words."""

    environment: str
    kind: str
    may_change: MixedTable
    locked: MixedTable


class TryEnvironment(EnvironmentQuery):
    model: str = "tiny"
    cases: int = Field(default=2, ge=1, le=100)
    settings: dict[str, Any] = Field(default_factory=dict)


class Tried(Frozen):
    """One thing that was looked at."""

    what: str
    ok: bool
    detail: str = ""
    is_doubtful: bool = Field(default=False, description="it may be a fault, or may not")


class TriedEnvironment(Frozen):
    environment: str
    ok: bool
    checks: tuple[Tried, ...]


class NewEnvironment(Frozen):
    name: str
    start: str = Field(default="tool", description="what to start from: tool, documents or game")


class WrittenEnvironment(Frozen):
    files: tuple[str, ...]


@operation(
    "env.list",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="env list", tool="list_environments"),
)
def list_environments(_: Nothing, caller: Caller) -> Catalogue:
    """All environments of the project and of installed packages, without running any."""
    return find_project(caller.folder).catalogue()


@operation(
    "env.show",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="env show", tool="describe_environment", known_as=("select_environment",)),
)
def show_environment(request: EnvironmentQuery, caller: Caller) -> ShownEnvironment:
    """What an environment is, and the fields of its config: values, and who locked them."""
    project = find_project(caller.folder)
    found = project.find(request.environment, by_name_only=not caller.is_owner)
    description = project.describe(found, may_write=caller.is_owner)
    if description.error:
        return ShownEnvironment(found=found, description=description)
    try:
        settled = settle(request.environment, "train", {}, caller)
    except SettingError:  # it wants something that is not set yet
        return ShownEnvironment(found=found, description=description)
    own = [each for each in _shown(settled) if each.name.startswith("config.")]
    return ShownEnvironment(found=found, description=description, config=tuple(own))


@operation(
    "config.show",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="config show", tool="show_config", known_as=("get_config",)),
)
def show_config(request: ConfigQuery, caller: Caller) -> ShownConfig:
    """Every setting of a run of this environment, with where it came from and who locked it.

    Short: values alone, those that you may change and those that are locked. Full: what each may
    be, what it is for, its source and its lock.
    """
    settled = settle(request.environment, request.kind, request.settings, caller)
    return ShownConfig(
        environment=settled.found.name,
        kind=request.kind,
        file=str(settled.project.root / settled.project.file.document.name),
        settings=tuple(_shown(settled)),
    )


@operation("env.test", role=Role.OWNER, changes_state=True, forms=Forms(cli="env test"))
def try_environment(request: TryEnvironment, caller: Caller) -> TriedEnvironment:
    """Load an environment, play a few cases of it and judge them, to see that all of it works."""
    of_training = TrainSettings.model_fields.keys() - PlaySettings.model_fields.keys()
    playing = {name: each for name, each in request.settings.items() if name not in of_training}
    settled = settle(request.environment, "eval", playing, caller)
    asked = {
        "target": settled.found.target,
        "config": settled.config,
        "play": settled.own(),
        "model": request.model,
        "cases": request.cases,
        **_warm_start(request, caller),
    }
    done = subprocess.run(
        [sys.executable, "-m", "sparring.worker.trying"],
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise SparringError(f"the test of {settled.found.name} broke; see above")
    checks = tuple(Tried.model_validate(each) for each in json.loads(lines[-1]))
    return TriedEnvironment(
        environment=settled.found.name, ok=all(each.ok for each in checks), checks=checks
    )


def _warm_start(request: TryEnvironment, caller: Caller) -> dict[str, Any]:
    """The demonstrations that a training would start from, where they are a file."""
    settled = settle(request.environment, "train", request.settings, caller)
    settings = TrainSettings.model_validate(settled.own())
    source = settings.warm_start.source if settings.warm_start else ""
    return {
        "to_train": settled.policy().model,
        "demonstrations": source if Path(source).is_file() else "",
    }


@operation("env.new", role=Role.OWNER, changes_state=True, forms=Forms(cli="init"))
def new_environment(request: NewEnvironment, caller: Caller) -> WrittenEnvironment:
    """Write a working environment, with a test and a project file, to start from."""
    folder = Path(caller.folder).resolve()
    if not request.name.isidentifier() or not request.name.islower():
        raise InvalidInput(
            f"{request.name!r} cannot be a name: use small letters, digits and _, as in my_agent"
        )
    written = write_environment(folder, request.name, request.start)
    return WrittenEnvironment(files=tuple(map(str, written)))


def _shown(settled: Settled) -> Iterator[ShownSetting]:
    about, kinds = describe_settings(settled.kind), types_of_settings(settled.kind)
    words = {f"config.{each.name}": each.description for each in settled.description.fields}
    for name, setting in sorted(settled.resolved.settings.items()):
        yield ShownSetting(
            name=name,
            value=setting.value,
            type=kinds.get(name, ""),
            source=setting.source,
            **_lock_of(setting.lock),
            description=about.get(name, about.get(name.partition(".")[0], "")),
            words=words.get(name, ""),
        )


def _lock_of(lock: Lock | None) -> dict[str, Any]:
    if lock is None:
        return {}
    by = f"{lock.author}, {lock.source}" if lock.author else lock.source
    return {"locked": True, "locked_by": by, "reason": lock.reason}
