"""Resolves the environment of a run, and each of its settings with its source.

Locks are enforced here, so no surface can bypass them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.environments import EnvironmentDescription, FoundEnvironment
from sparring.contracts.errors import (
    EnvironmentBroken,
    InvalidInput,
    NotPermitted,
    SettingError,
)
from sparring.contracts.specs import COMMAND, PlaySettings, PolicySpec, Supervision, Table
from sparring.contracts.training import TrainSettings
from sparring.operations.operation import Caller
from sparring.projects import Project, find_project
from sparring.run_folder.training_paths import existing_folder
from sparring.settings.fields import (
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
from sparring.settings.layers import DEFAULTS, Layer, Resolved, resolve
from sparring.settings.locks import UNSET, Lock, default_locks
from sparring.settings.names import touches
from sparring.settings.project_file import Budget
from sparring.settings.safe_values import refuse_unsafe_values
from sparring.source_files import code_digest, digests_of

_PATH_FORMATS = ("path", "file-path", "directory-path")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The resolved settings of a run, with its environment, budget and locks.

    `binding` holds the locks that bind the caller.
    """

    project: Project
    found: FoundEnvironment
    description: EnvironmentDescription
    resolved: Resolved
    values: Table
    settings: PlaySettings
    supervision: Supervision
    kind: Kind
    budget: Budget
    binding: tuple[Lock, ...]

    @property
    def config(self) -> Table:
        """The environment's config."""
        return dict(self.values.get("config") or {})

    @property
    def train_settings(self) -> TrainSettings:
        """The settings of a training run. Raises TypeError for other kinds."""
        if not isinstance(self.settings, TrainSettings):
            raise TypeError(f"settings of kind {self.kind} are not those of a training run")
        return self.settings

    def lock_on(self, name: str) -> Lock | None:
        """Return the lock on a field, or None. The field need not have a value."""
        if name in self.resolved.settings:
            return self.resolved.settings[name].lock
        return next((each for each in self.binding if touches(each.field, name)), None)

    def policy(self) -> PolicySpec:
        """Return the spec of the policy that plays the rollouts."""
        return PolicySpec(
            model=self.values["model"],
            family=self.values["family"],
            thinking=self.settings.thinking,
            history_thinking=self.settings.history_thinking,
        )

    def shared(self) -> Table:
        """Return the fields that the specs of all kinds share."""
        return {
            "target": self.found.target,
            "environment": self.found.name,
            "config": self.config,
            "policy": self.policy(),
            "sources": self.sources(),
            "locks": self.locks(),
            "services": self.description.services,
            "supervision": self.supervision,
            "hours": self.budget.hours,
            "code_digest": code_digest(self.found.target),
            "code_files": digests_of(self.project.sources_of(self.found)),
        }

    def locks(self) -> dict[str, str]:
        """Return the sources of the locks that bind the owner, by setting."""
        return {
            name: setting.lock.source
            for name, setting in self.resolved.settings.items()
            if setting.lock is not None and setting.lock.binds_owner
        }

    def sources(self) -> dict[str, str]:
        """Return the sources of settings that are not defaults."""
        return changed_from_defaults(self.resolved)


def resolve_run(target: str, kind: Kind, command: Table, caller: Caller) -> RunSettings:
    """Find and describe the environment, merge the layers of settings and enforce the locks."""
    refuse_unsafe_values(command, COMMAND)
    project = find_project(caller.folder)
    is_owner = caller.is_owner
    found = project.find(target, by_name_only=not is_owner)
    description = project.describe(found, is_owner=is_owner)
    if description.error:
        raise EnvironmentBroken(description.error)
    _refuse_bare_config_fields(command, description, kind)
    refuse_unknown(command, COMMAND, known_names(kind))
    _refuse_unknown_environments(project)
    locks = locks_of(project, found, description)
    resolved = resolve(
        layers_of(project, found, description, kind, command), locks, is_operator=not is_owner
    )
    _refuse_locks_on_unknown_fields(project, found, resolved)
    checked = check_types(resolved, kind, description.fields)
    values = checked.values
    _resolve_paths(values, description, resolved, project)
    settings = _with_source(checked.settings, values)
    if not is_owner:
        _refuse_paths_outside(values, resolved, project)
    budget = project.file.budget if is_owner else project.file.budget.for_operators()
    binding = tuple(each for each in locks if each.binds_owner or not is_owner)
    return RunSettings(
        project=project,
        found=found,
        description=description,
        resolved=resolved,
        values=values,
        settings=settings,
        supervision=checked.supervision,
        kind=kind,
        budget=budget,
        binding=binding,
    )


def locks_of(
    project: Project, found: FoundEnvironment, description: EnvironmentDescription
) -> list[Lock]:
    """Return the project file's locks, and the default locks for operators.

    The default locks cover all fields of the config that `may_set` does not list, because a field
    may select a file or move cases between splits.
    """
    config = [f"config.{each.name}" for each in description.fields]
    may_set = project.file.operators.may_set
    return [*project.file.locks_for(found.name), *default_locks(may_set, config)]


def layers_of(
    project: Project,
    found: FoundEnvironment,
    description: EnvironmentDescription,
    kind: Kind,
    command: Table,
) -> list[Layer]:
    """Return the layers, lowest first: defaults, environment, project file, command."""
    own = description.settings
    known = known_names(kind)
    if kind == "train":
        refuse_unknown(own, f"{Path(found.file).name}: {found.class_name}.settings", known)
    else:
        own = {name: value for name, value in own.items() if name in PLAYED}
    source = f"{found.class_name} in {Path(found.file).name}"
    refuse_unsafe_values(own, source)
    requested = {name: value for name, value in command.items() if (name, value) != ("config", {})}
    return [
        Layer(DEFAULTS, defaults(kind, description.fields)),
        Layer(source, normalised(own)),
        *project.file.layers(found.name, kind),
        Layer(COMMAND, normalised(requested), is_written=True, is_command=True),
    ]


def _refuse_bare_config_fields(
    command: Table, description: EnvironmentDescription, kind: Kind
) -> None:
    """Refuse `name=…` for a field of the config, which must be written as `config.name=…`."""
    for name in command:
        if name not in known_names(kind) and name in {each.name for each in description.fields}:
            raise SettingError(f"{COMMAND}: {name} is a field of config; write config.{name}")


def _refuse_unknown_environments(project: Project) -> None:
    """Refuse a project file that names an unknown environment: a lock on it would have no effect.

    Nothing is refused while the catalogue has problems: a file that cannot be read may define the
    environment.
    """
    catalogue = project.catalogue()
    known = list(dict.fromkeys(each.name for each in catalogue.environments))
    if not catalogue.problems and (message := project.file.misnamed(known)):
        raise InvalidInput(message)


def _refuse_locks_on_unknown_fields(
    project: Project, found: FoundEnvironment, resolved: Resolved
) -> None:
    for lock in project.file.locks_for(found.name):
        table = lock.field.partition(".")[0]
        # Evaluations ignore locks on settings that only a training has.
        if table not in resolved.values() and table in known_names("train"):
            continue
        if lock.value is UNSET and not any(touches(lock.field, each) for each in resolved.settings):
            hint = nearest(lock.field, resolved.settings) or "correct or remove the lock"
            raise SettingError(f"{lock.source}: there is no field {lock.field} to lock; {hint}")


def _resolve_paths(
    values: Table,
    description: EnvironmentDescription,
    resolved: Resolved,
    project: Project,
) -> None:
    """Make the paths in `values` absolute, at any depth. A path in the command is relative to the
    current folder, any other path to the project's root. A model is a path only if that folder or,
    by the end of its id, that training run exists; a warm start's source only if that file or
    folder exists."""

    def absolute(value: Any, name: str) -> Any:
        if isinstance(value, list):
            return [absolute(each, name) for each in value]
        if isinstance(value, dict):
            return {key: absolute(each, name) for key, each in value.items()}
        if not isinstance(value, str):
            return value
        base = Path.cwd() if resolved.source_of(name) == COMMAND else project.root
        return str(base / value)

    config = values["config"]
    for name in path_fields(description):
        if name in config:
            config[name] = absolute(config[name], f"config.{name}")
    if isinstance(model := values.get("model"), str):
        folder = existing_folder(Path(absolute(model, "model")))
        values["model"] = model if folder is None else str(folder)
    warm = values.get("warm_start")
    if isinstance(warm, dict) and isinstance(source := warm.get("source"), str):
        path = absolute(source, "warm_start.source")
        if Path(path).exists():
            warm["source"] = path


def _with_source(settings: PlaySettings, values: Table) -> PlaySettings:
    """Return the settings with the resolved path of the warm start's source."""
    if not isinstance(settings, TrainSettings) or settings.warm_start is None:
        return settings
    warm_start = settings.warm_start.model_copy(update={"source": values["warm_start"]["source"]})
    return settings.model_copy(update={"warm_start": warm_start})


def _refuse_paths_outside(values: Table, resolved: Resolved, project: Project) -> None:
    """Refuse an operator's path outside of the project, even in a field that operators may set."""
    by_name = {f"config.{name}": value for name, value in values["config"].items()}
    by_name["warm_start.source"] = (values.get("warm_start") or {}).get("source")
    by_name["model"] = values.get("model")
    for name, value in by_name.items():
        if resolved.source_of(name) != COMMAND:
            continue
        for each in _texts(value):
            if _is_outside(each, project.root):
                raise NotPermitted(
                    f"{name}: only the owner may use files outside of the project; use a path "
                    "inside it"
                )


def _texts(value: Any) -> Iterator[str]:
    """Yield the strings in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _is_outside(path: str, root: Path) -> bool:
    """Return whether a path, with links resolved, is outside of `root`. A name that starts with
    none of `/`, `.` and `~` is a path only if it or its folder exists relative to `root`: else it
    may be a run or a model on the hub."""
    looks_like_one = path.startswith(("/", ".", "~"))
    try:
        target = (root / Path(path).expanduser()).resolve()
        is_path = looks_like_one or target.exists() or target.parent.is_dir()
    except (OSError, RuntimeError, ValueError):  # too long, or of an unknown user
        return looks_like_one
    return is_path and not target.is_relative_to(root.resolve())


def path_fields(description: EnvironmentDescription) -> list[str]:
    """Return the fields of a config that name a file or a folder."""
    return [
        each.name for each in description.fields if _formats(each.json_schema) & set(_PATH_FORMATS)
    ]


def _formats(schema: Any) -> set[str]:
    """Return the string formats that a JSON schema allows, at any depth."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            if isinstance(name := each.get("format"), str):
                found.add(name)
            pending += [inner for key, inner in each.items() if key != "default"]
        elif isinstance(each, list):
            pending += each
    return found
