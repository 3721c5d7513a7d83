"""Settling what a run is started from: which environment, and every setting with its source.

Locks are enforced here, so no surface can get round them; budgets are, where a run starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sparring.contracts.environments import EnvironmentDescription, FoundEnvironment
from sparring.contracts.errors import (
    EnvironmentBroken,
    InvalidInput,
    NotPermitted,
    SettingError,
)
from sparring.contracts.specs import PolicySpec, Supervision
from sparring.operations.operation import Caller
from sparring.projects import Project, find_project
from sparring.settings.fields import (
    MODELS,
    PLAYED,
    Kind,
    changed_from_defaults,
    check_types,
    defaults,
    known_names,
    nearest,
    normalised,
    refuse_unknown,
)
from sparring.settings.locks import UNSET, Lock, default_locks
from sparring.settings.names import touches
from sparring.settings.plain import refuse_odd
from sparring.settings.project_file import Budget
from sparring.settings.resolving import DEFAULTS, Layer, Resolved, resolve
from sparring.source_files import code_digest

COMMAND = "the command"
_PATHS = ("path", "file-path", "directory-path")
_ADDRESSES = ("uri", "ipv4", "ipv6", "hostname")


@dataclass(frozen=True, slots=True)
class Settled:
    """An environment, and all that a run of it needs to know."""

    project: Project
    found: FoundEnvironment
    description: EnvironmentDescription
    resolved: Resolved
    values: dict[str, Any]
    kind: Kind
    budget: Budget
    binding: tuple[Lock, ...]

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.values.get("config") or {})

    def own(self) -> dict[str, Any]:
        """The settings of this kind of run."""
        return {name: self.values[name] for name in MODELS[self.kind].model_fields}

    def typed(self) -> BaseModel:
        return MODELS[self.kind].model_validate(self.own())

    def lock_on(self, name: str) -> Lock | None:
        """The lock that a field is under, also one that nobody has set."""
        if name in self.resolved.settings:
            return self.resolved.settings[name].lock
        return next((each for each in self.binding if touches(each.field, name)), None)

    def policy(self) -> PolicySpec:
        return PolicySpec(model=self.values["model"], family=self.values["family"])

    def shared(self) -> dict[str, Any]:
        """What specs of every kind of run have in common."""
        names = Supervision.model_fields
        return {
            "target": self.found.target,
            "environment": self.found.name,
            "config": self.config,
            "policy": self.policy(),
            "sources": self.sources(),
            "locks": self.locks(),
            "services": self.description.services,
            "supervision": Supervision.model_validate({name: self.values[name] for name in names}),
            "hours": self.budget.hours,
            "code_digest": code_digest(self.found.target),
        }

    def locks(self) -> dict[str, str]:
        """Who has fixed a setting: the project's locks, and those that bind operators."""
        return {
            name: setting.lock.source
            for name, setting in self.resolved.settings.items()
            if setting.lock is not None and setting.lock.binds_owner
        }

    def sources(self) -> dict[str, str]:
        return changed_from_defaults(self.resolved)


def settle(target: str, kind: Kind, command: dict[str, Any], caller: Caller) -> Settled:
    """Find the environment, ask what it says of itself, and merge the layers over it."""
    refuse_odd(command, COMMAND)
    project = find_project(caller.folder)
    is_owner = caller.is_owner
    found = project.find(target, by_name_only=not is_owner)
    description = project.describe(found, may_write=is_owner)
    if description.error:
        raise EnvironmentBroken(description.error)
    _refuse_without_table(command, description, kind)
    refuse_unknown(command, COMMAND, known_names(kind))
    _refuse_misnamed(project)
    locks = locks_of(project, found, description)
    resolved = resolve(
        layers_of(project, found, description, kind, command), locks, is_operator=not is_owner
    )
    _refuse_locks_on_nothing(project, found, resolved)
    values = check_types(resolved, kind, description.fields)
    _place_paths(values, description, resolved, project)
    if not is_owner:
        _refuse_outside(values, description, resolved, project)
    budget = project.file.budget if is_owner else project.file.budget.for_operators()
    binding = tuple(each for each in locks if each.binds_owner or not is_owner)
    return Settled(project, found, description, resolved, values, kind, budget, binding)


def locks_of(
    project: Project, found: FoundEnvironment, description: EnvironmentDescription
) -> list[Lock]:
    """Those of the file, and those that bind operators: fields of a config that name a file or a
    server are among them."""
    delicate = [
        f"config.{each.name}"
        for each in description.fields
        if _formats(each.json_schema) & {*_PATHS, *_ADDRESSES}
    ]
    free = project.file.operators.may_set
    return [*project.file.locks_for(found.name), *default_locks(free, delicate)]


def layers_of(
    project: Project,
    found: FoundEnvironment,
    description: EnvironmentDescription,
    kind: Kind,
    command: dict[str, Any],
) -> list[Layer]:
    """Defaults, environment, project file, command."""
    own = description.settings
    known = known_names(kind)
    if kind == "train":
        refuse_unknown(own, f"{Path(found.file).name}: {found.class_name}.settings", known)
    else:
        own = {name: value for name, value in own.items() if name in PLAYED}
    place = f"{found.class_name} in {Path(found.file).name}"
    refuse_odd(own, place)
    asked = {name: value for name, value in command.items() if (name, value) != ("config", {})}
    return [
        Layer(DEFAULTS, defaults(kind, description.fields)),
        Layer(place, normalised(own)),
        *project.file.layers(found.name, kind),
        Layer(COMMAND, normalised(asked), is_written=True, is_command=True),
    ]


def _refuse_without_table(
    command: dict[str, Any], description: EnvironmentDescription, kind: Kind
) -> None:
    """A field of the config, asked for as if it were a setting."""
    for name in command:
        if name not in known_names(kind) and name in {each.name for each in description.fields}:
            raise SettingError(f"{COMMAND}: {name}: that is a field of config: config.{name}")


def _refuse_misnamed(project: Project) -> None:
    """A lock on an environment that there is not would bind nobody. Where a file cannot be read,
    it may be the one."""
    catalogue = project.catalogue()
    known = list(dict.fromkeys(each.name for each in catalogue.environments))
    if not catalogue.problems and (told := project.file.misnamed(known)):
        raise InvalidInput(told)


def _refuse_locks_on_nothing(project: Project, found: FoundEnvironment, resolved: Resolved) -> None:
    for lock in project.file.locks_for(found.name):
        if lock.field.partition(".")[0] not in resolved.values() and _is_of_other_kind(lock.field):
            continue
        if lock.value is UNSET and not any(touches(lock.field, each) for each in resolved.settings):
            hint = nearest(lock.field, resolved.settings)
            raise SettingError(f"{lock.source}: {lock.field}: there is nothing to lock; {hint}")


def _place_paths(
    values: dict[str, Any],
    description: EnvironmentDescription,
    resolved: Resolved,
    project: Project,
) -> None:
    """Paths are meant from where they are written: the project's folder, or the caller's."""

    def placed(value: Any, name: str) -> Any:
        if isinstance(value, list):
            return [placed(each, name) for each in value]
        if not isinstance(value, str):
            return value
        base = Path.cwd() if resolved.source_of(name) == COMMAND else project.root
        return str(base / value)

    config = values["config"]
    for name in path_fields(description):
        if name in config:
            config[name] = placed(config[name], f"config.{name}")
    if isinstance(model := values.get("model"), str) and Path(placed(model, "model")).is_dir():
        values["model"] = placed(model, "model")
    warm = values.get("warm_start")
    if isinstance(warm, dict) and isinstance(source := warm.get("source"), str):
        place = placed(source, "warm_start.source")
        if Path(place).exists():
            warm["source"] = place


def _is_of_other_kind(field: str) -> bool:
    """A setting of trainings is nothing to an evaluation, and may be locked all the same."""
    return field.partition(".")[0] in known_names("train")


def _refuse_outside(
    values: dict[str, Any],
    description: EnvironmentDescription,
    resolved: Resolved,
    project: Project,
) -> None:
    """Where an owner lets operators name a file, it means one of the project."""
    config = values["config"]
    named = {f"config.{name}": config.get(name) for name in path_fields(description)}
    named["warm_start.source"] = (values.get("warm_start") or {}).get("source")
    named["model"] = values.get("model")
    for name, value in named.items():
        if resolved.source_of(name) != COMMAND:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str) and _leads_out(each, project.root):
                raise NotPermitted(f"{name}: files outside of the project are the owner's to name")


def _leads_out(path: str, root: Path) -> bool:
    """Also by a link. What is no file is something else: a run, a model of the hub."""
    place = (root / path).resolve()
    is_a_path = place.exists() or path.startswith(("/", ".", "~"))
    return is_a_path and not place.is_relative_to(root.resolve())


def path_fields(description: EnvironmentDescription) -> list[str]:
    """Fields of a config that name a file or a folder."""
    return [each.name for each in description.fields if _formats(each.json_schema) & set(_PATHS)]


def _formats(schema: Any) -> set[str]:
    """What kinds of text a field may hold, in any of its alternatives."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if isinstance(told := each.get("format"), str):
                found.add(told)
            waiting += [inner for name, inner in each.items() if name != "default"]
        elif isinstance(each, list):
            waiting += each
    return found
