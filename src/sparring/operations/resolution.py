"""Resolves what a run is started with: environment, settings with their sources, limits.

Locks and budgets are enforced here, so no surface can bypass them: `RunSettings.spec` is the only
way from settings to a spec, and `revalidate` checks the spec of an existing run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from os.path import normpath
from pathlib import Path
from typing import Any, TypeVar

from sparring.contracts.environments import EnvironmentDescription, FoundEnvironment
from sparring.contracts.errors import (
    EnvironmentBroken,
    InvalidInput,
    LockedField,
    NotPermitted,
    OverBudget,
    RunNotFound,
    SettingError,
)
from sparring.contracts.kinds import AuditSpec, CheckSpec, ProveSpec, ShipSpec, run_kind
from sparring.contracts.specs import (
    COMMAND,
    LOCAL,
    EvalSpec,
    Frozen,
    PlaySettings,
    PolicySpec,
    RunSpec,
    Table,
)
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.engine_tables import wrong_fields
from sparring.operations.operation import Caller
from sparring.projects import Project, find_project
from sparring.run_folder.layout import existing_folder
from sparring.runs.finding import find_run
from sparring.settings.fields import (
    PLAYED,
    Kind,
    ProcessSettings,
    known_names,
    nearest,
    refuse_unknown,
)
from sparring.settings.layers import (
    DEFAULTS,
    CheckedSettings,
    Layer,
    Resolved,
    check_types,
    defaults,
    flatten,
    merge,
    nested,
    normalised,
    refuse_unsafe_values,
    same,
)
from sparring.settings.locks import UNSET, Lock, default_locks, touches
from sparring.settings.project_file import Budget, ProjectFile
from sparring.source_files import code_digest, digests_of

_PATH_FORMATS = ("path", "file-path", "directory-path")
_PROOF_SETTINGS = frozenset(PlaySettings.model_fields) - {"num_generations", "seed"}
_ABSENT = object()

Spec = TypeVar("Spec", bound=RunSpec)


@dataclass(frozen=True, slots=True)
class Command:
    """The kind of run that a command starts, and the settings that it sets."""

    kind: Kind
    settings: Table


@dataclass(frozen=True, slots=True)
class DescribedEnvironment:
    """An environment, where it was found, and how it describes itself."""

    found: FoundEnvironment
    description: EnvironmentDescription

    @property
    def path_fields(self) -> list[str]:
        """The fields of the config that name a file or a folder."""
        return [
            each.name
            for each in self.description.fields
            if _formats(each.json_schema) & set(_PATH_FORMATS)
        ]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The resolved settings of a run, with its environment, budget and locks.

    `resolved` has the source and the lock of each setting, `checked` the validated values, and
    `binding` the locks that bind the caller.
    """

    project: Project
    environment: DescribedEnvironment
    kind: Kind
    resolved: Resolved
    checked: CheckedSettings
    budget: Budget
    binding: tuple[Lock, ...]

    @property
    def name(self) -> str:
        """The environment's name."""
        return self.environment.found.name

    @property
    def training(self) -> TrainSettings:
        """The settings of a training run. Raises TypeError for other kinds."""
        if not isinstance(self.checked.play, TrainSettings):
            raise TypeError(f"settings of kind {self.kind} are not those of a training run")
        return self.checked.play

    def lock_on(self, name: str) -> Lock | None:
        """Return the lock on a field, or None. The field need not have a value."""
        if name in self.resolved.settings:
            return self.resolved.settings[name].lock
        return next((each for each in self.binding if touches(each.field, name)), None)

    def policy(self) -> PolicySpec:
        """Return the spec of the policy that plays the rollouts."""
        return PolicySpec(
            model=self.checked.model.model,
            family=self.checked.model.family,
            thinking=self.checked.play.thinking,
            history_thinking=self.checked.play.history_thinking,
        )

    def spec(self, spec_class: type[Spec], **own: Any) -> Spec:
        """Return the spec of a run with these settings and the spec's own fields. Raise OverBudget
        if the run could exceed the budget."""
        found, checked = self.environment.found, self.checked
        names = spec_class.model_fields.keys()
        if "play" in names:
            own["play"] = checked.play
        else:
            own["settings"] = self.training
        for name in ProcessSettings.model_fields.keys() & names:
            own[name] = getattr(checked.processes, name)
        spec = spec_class(
            target=found.target,
            environment=found.name,
            config=checked.config,
            policy=self.policy(),
            sources=self.resolved.sources(),
            locks={
                name: setting.lock.source
                for name, setting in self.resolved.settings.items()
                if setting.lock is not None and setting.lock.binds_owner
            },
            services=self.environment.description.services,
            supervision=checked.supervision,
            hours=self.budget.hours,
            code_digest=code_digest(found.target),
            code_files=digests_of(self.project.sources_of(found)),
            **own,
        )
        refuse_over_budget(spec, self.budget, self.project.file)
        return spec


def fields_for(spec_class: type[RunSpec], request: Frozen) -> Table:
    """Return the fields of a request that the spec has, too, by name."""
    names = spec_class.model_fields.keys() - RunSpec.model_fields.keys() - {"settings"}
    return {name: getattr(request, name) for name in type(request).model_fields if name in names}


def resolve_run(target: str, kind: Kind, settings: Table, caller: Caller) -> RunSettings:
    """Find and describe the environment that the caller names, and resolve its settings."""
    project = find_project(caller.folder)
    found = project.find(target, by_name_only=not caller.is_owner)
    description = project.describe(found, is_owner=caller.is_owner)
    if description.error:
        raise EnvironmentBroken(description.error)
    environment = DescribedEnvironment(found, description)
    return resolve(project, environment, Command(kind, settings), caller)


def resolve(
    project: Project, environment: DescribedEnvironment, command: Command, caller: Caller
) -> RunSettings:
    """Merge the layers of settings under the locks, and check every value.

    Paths are absolute before values are compared with locks and checked; afterwards, nothing
    changes them. The result depends on the arguments, and on which of the named files and runs
    exist.
    """
    refuse_unsafe_values(command.settings, COMMAND)
    _refuse_unknown_names(project, environment, command)
    locks = _locks(project, environment, caller)
    resolved = merge(
        _layers(project, environment, command, caller), locks, is_operator=not caller.is_owner
    )
    _refuse_locks_on_unknown_fields(project, environment, resolved)
    checked = check_types(resolved, command.kind, environment.description.fields)
    if isinstance(checked.play, TrainSettings) and checked.supervision.launcher == LOCAL:
        play = checked.play  # other hosts may have other versions of the packages
        tables = {"lora": play.lora, "quantization": play.quantization, "engine": play.engine}
        if wrong := wrong_fields(tables):
            lines = [f"{resolved.source_of(name)}: {problem}" for name, problem in wrong.items()]
            raise SettingError("\n".join(lines))
    if not caller.is_owner:
        _refuse_paths_outside(resolved, project.root)
    return RunSettings(
        project=project,
        environment=environment,
        kind=command.kind,
        resolved=resolved,
        checked=checked,
        budget=project.file.budget_for(is_owner=caller.is_owner),
        binding=tuple(each for each in locks if each.binds_owner or not caller.is_owner),
    )


# ------------------------------------------------------------------ layers and locks


def _layers(
    project: Project, environment: DescribedEnvironment, command: Command, caller: Caller
) -> list[Layer]:
    """Return the layers, lowest first: defaults, environment, project file, command. A path in the
    command is relative to the current folder, any other path to the project's root. A path that an
    operator repeats from the defaults stays as it is written there."""
    found, description = environment.found, environment.description
    kind, own = command.kind, description.settings
    if kind == "eval":
        own = {name: value for name, value in own.items() if name in PLAYED}
    source = f"{found.class_name} in {Path(found.file).name}"
    refuse_unsafe_values(own, source)
    settings = command.settings
    requested = {name: value for name, value in settings.items() if (name, value) != ("config", {})}
    given = [
        Layer(source, normalised(own)),
        *project.file.layers(found.name, kind),
        Layer(COMMAND, normalised(requested), is_written=True, is_command=True),
    ]

    lowest = defaults(kind, description.fields)

    def located(layer: Layer) -> Layer:
        base = Path.cwd() if layer.is_command else project.root
        inside = project.root if layer.is_command and not caller.is_owner else None
        values = _located(layer.values, base, environment, caller.runs, inside)
        if inside is not None and isinstance(config := values.get("config"), dict):
            repeated = _located(lowest, base, environment, caller.runs, inside)
            values["config"] = {
                name: lowest["config"][name]
                if name in lowest.get("config", {}) and repeated["config"][name] == value
                else value
                for name, value in config.items()
            }
        return replace(layer, values=values)

    return [Layer(DEFAULTS, lowest), *map(located, given)]


def _locks(project: Project, environment: DescribedEnvironment, caller: Caller) -> list[Lock]:
    """Return the project file's locks, and the default locks for operators.

    The default locks cover all fields of the config that `may_set` does not list, because a field
    may select a file or move cases between splits.
    """
    config = [f"config.{each.name}" for each in environment.description.fields]

    def located(lock: Lock) -> Lock:
        if lock.value is UNSET:
            return lock
        value: Any = nested({lock.field: lock.value})
        value = _located(value, project.root, environment, caller.runs)
        for part in lock.field.split("."):
            value = value[part]
        return replace(lock, value=value)

    own = map(located, project.file.locks_for(environment.found.name))
    return [*own, *default_locks(project.file.tables.operators.may_set, config)]


def _located(
    values: Table,
    base: Path,
    environment: DescribedEnvironment,
    runs: Path,
    inside: Path | None = None,
) -> dict[str, Any]:
    """Return the values with absolute paths, at any depth of the config's fields. A model is a path
    only if that folder or, by the end of its id, that training run exists; a warm start's source
    if that file or folder exists, and otherwise the id of the run that it names, if any.

    With `inside`, nothing outside of that folder is looked at: a model or a source there stays as
    it is written, so that a refusal does not tell what exists.
    """

    def may_look(value: str) -> bool:
        return inside is None or Path(normpath(base / value)).is_relative_to(inside)

    def absolute(value: Any) -> Any:
        if isinstance(value, list):
            return [absolute(each) for each in value]
        if isinstance(value, dict):
            return {key: absolute(each) for key, each in value.items()}
        return str(base / value) if isinstance(value, str) else value

    located = dict(values)
    if isinstance(config := values.get("config"), dict):
        paths = {name: absolute(config[name]) for name in environment.path_fields if name in config}
        located["config"] = {**config, **paths}
    if isinstance(model := values.get("model"), str) and may_look(model):
        folder = existing_folder(base / model)
        located["model"] = model if folder is None else str(folder)
    warm = values.get("warm_start")
    if (
        isinstance(warm, dict)
        and isinstance(source := warm.get("source"), str)
        and may_look(source)
    ):
        located["warm_start"] = {**warm, "source": _demonstrations(source, base, runs)}
    return located


def _demonstrations(source: str, base: Path, runs: Path) -> str:
    path = base / source
    try:
        if path.exists():
            return str(path)
    except OSError:  # such as a name that is too long
        return source
    if Path(source).name != source and path.parent.resolve() != runs.resolve():
        return source
    try:
        return find_run(runs, path.name).id
    except RunNotFound:
        return source


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


# ------------------------------------------------------------------ refusals


def _refuse_unknown_names(
    project: Project, environment: DescribedEnvironment, command: Command
) -> None:
    """Refuse unknown settings of the command and of the environment, and a project file that names
    an unknown environment: a lock on it would have no effect.

    No environment is refused while the catalogue has problems: a file that cannot be read may
    define it.
    """
    found, description = environment.found, environment.description
    known, fields = known_names(command.kind), {each.name for each in description.fields}
    for name in command.settings:
        if name not in known and name in fields:
            raise SettingError(f"{COMMAND}: {name} is a field of config; write config.{name}")
    refuse_unknown(command.settings.keys(), COMMAND, known)
    catalogue = project.catalogue()
    names = list(dict.fromkeys(each.name for each in catalogue.environments))
    if not catalogue.problems and (message := project.file.misnamed(names)):
        raise InvalidInput(message)
    if command.kind == "train":
        place = f"{Path(found.file).name}: {found.class_name}.settings"
        refuse_unknown(description.settings, place, known)


def _refuse_locks_on_unknown_fields(
    project: Project, environment: DescribedEnvironment, resolved: Resolved
) -> None:
    for lock in project.file.locks_for(environment.found.name):
        table = lock.field.partition(".")[0]
        # Evaluations ignore locks on settings that only a training has.
        if table not in resolved.values() and table in known_names("train"):
            continue
        if lock.value is UNSET and not any(touches(lock.field, each) for each in resolved.settings):
            hint = nearest(lock.field, resolved.settings) or "correct or remove the lock"
            raise SettingError(f"{lock.source}: there is no field {lock.field} to lock; {hint}")


def _refuse_paths_outside(resolved: Resolved, root: Path) -> None:
    """Refuse an operator's path outside of the project, even in a field that operators may set."""
    for name, setting in resolved.settings.items():
        is_path = name.startswith("config.") or name in ("warm_start.source", "model")
        if not is_path or setting.source != COMMAND:
            continue
        if any(_is_outside(each, root) for each in _texts(setting.value)):
            raise NotPermitted(
                f"{name}: only the owner may use files outside of the project; use a path inside it"
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


# ------------------------------------------------------------------ budget


def refuse_over_budget(spec: RunSpec, budget: Budget, file: ProjectFile) -> None:
    """Raise OverBudget if a run of this spec could exceed the budget's steps or rollouts.

    The other limits apply later: beyond `runs_at_once` a run waits, and after `hours` it is
    stopped.
    """
    kind, steps = run_kind(spec.kind, "the run"), spec.optimizer_steps
    place = file.document.place_of("budget")
    if steps is None and (budget.steps or budget.rollouts):
        raise OverBudget(
            f"{place}: the project has a budget, so the run needs a length: set max_steps"
        )
    if budget.steps is not None and steps is not None and steps > budget.steps:
        raise OverBudget(
            f"{file.document.place_of('budget.steps')}: at most {budget.steps} steps per run; "
            f"{kind.steps_setting} is {steps}"
        )
    settings = kind.budget_settings
    if budget.rollouts is None or not settings:
        return
    place, most = file.document.place_of("budget.rollouts"), spec.max_rollouts
    if most is None:
        raise OverBudget(f"{place}: the project has a budget of rollouts, so set {settings}")
    if most > budget.rollouts:
        raise OverBudget(
            f"{place}: at most {budget.rollouts:,} rollouts per run; this one could play {most:,}; "
            f"lower {settings}"
        )


# ------------------------------------------------------------------ existing runs


def revalidate(spec: RunSpec, caller: Caller) -> None:
    """Raise LockedField or OverBudget if the caller could not start this run now.

    Settings that the run's command set must not be locked, locked settings must have the project's
    values, and the run must be within the budget.
    """
    kind: Kind = "eval" if isinstance(spec, EvalSpec | AuditSpec) else "train"
    run_settings = resolve_run(spec.environment, kind, nested(request_of(spec)), caller)
    refuse_over_budget(spec, run_settings.budget, run_settings.project.file)
    then, now = all_settings(spec), run_settings.checked.by_name()
    names = _PROOF_SETTINGS if isinstance(spec, ProveSpec | ShipSpec) else now.keys() | then.keys()
    for name in sorted(names):
        lock = run_settings.lock_on(name)
        before, today = then.get(name, _ABSENT), now.get(name, _ABSENT)
        if before is _ABSENT and "." not in name:  # runs of this kind have no such setting
            continue
        if before == {} or today == {}:  # the fields of a table are compared one by one
            continue
        if lock is not None and not same(before, today):
            raise LockedField(
                f"{name} is locked to {_as_text(today)} by {lock.source}, and this run was started "
                f"with {_as_text(before)}; plan a new run"
            )


def settings_of(spec: RunSpec) -> Table:
    """Return the settings of a run that are not defaults, by dotted name."""
    settings = all_settings(spec)
    return {name: settings[name] for name in spec.sources if name in settings}


def request_of(spec: RunSpec) -> Table:
    """Return the settings that the command set for this run, by dotted name."""
    settings = settings_of(spec).items()
    return {name: value for name, value in settings if spec.sources[name] == COMMAND}


def all_settings(spec: RunSpec) -> Table:
    """Return all settings of a run, by dotted name."""
    tables = spec.model_dump(mode="json")
    values = {**tables.get("settings", {}), **tables.get("play", {}), **tables["supervision"]}
    if isinstance(spec, TrainSpec | CheckSpec):
        values |= {name: tables.get(name) for name in ("processes", "nodes")}
    if isinstance(spec, TrainSpec):
        values["rendezvous"] = spec.rendezvous
    values |= {"config": spec.config, "model": spec.policy.model, "family": spec.policy.family}
    return dict(flatten(values))


def _as_text(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)[:200]
