"""Settling what a run is started from: which environment, and every setting with its source.

Locks and budgets are enforced here, so no surface can get round them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.environments import EnvironmentDescription, FoundEnvironment
from sparring.contracts.errors import InvalidInput, NotPermitted, OverBudget
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings
from sparring.operations.operation import Caller, Role
from sparring.projects import Project, find_project
from sparring.settings.fields import (
    MODELS,
    Kind,
    changed_from_defaults,
    check_types,
    defaults,
    known_names,
    refuse_unknown,
)
from sparring.settings.locks import default_locks
from sparring.settings.project_file import Budget
from sparring.settings.resolving import Layer, Resolved, resolve

_PATHS = ("path", "file-path", "directory-path")


@dataclass(frozen=True, slots=True)
class Settled:
    """An environment, and all that a run of it needs to know."""

    project: Project
    found: FoundEnvironment
    description: EnvironmentDescription
    resolved: Resolved
    values: dict[str, Any]
    kind: Kind

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.values.get("config") or {})

    def own(self) -> dict[str, Any]:
        """The settings of this kind of run."""
        return {name: self.values[name] for name in MODELS[self.kind].model_fields}

    def policy(self) -> PolicySpec:
        return PolicySpec(model=self.values["model"], family=self.values["family"])

    def sources(self) -> dict[str, str]:
        return changed_from_defaults(self.resolved)


def settle(target: str, kind: Kind, command: dict[str, Any], caller: Caller) -> Settled:
    """Find the environment, ask what it says of itself, and merge the layers over it."""
    project = find_project(caller.folder)
    is_operator = caller.role < Role.OWNER
    if is_operator and ("/" in target or target.endswith(".py") or ".py:" in target):
        raise NotPermitted(
            f"{caller.name} names environments of this project, not files: `sparring env list`"
        )
    found = project.find(target)
    description = project.describe(found)
    if description.error:
        raise InvalidInput(description.error)
    refuse_unknown(command, "the command", known_names(kind))
    resolved = resolve(
        layers_of(project, found, description, kind, command),
        [*project.file.locks_for(found.name), *default_locks(project.file.operators.may_set)],
        is_operator=is_operator,
    )
    values = check_types(resolved, kind, description.fields)
    values["config"] = _with_full_paths(values.get("config") or {}, description, resolved, project)
    settled = Settled(project, found, description, resolved, values, kind)
    if kind == "train":
        _refuse_over_budget(project.file.budget, settled)
    return settled


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
        own = {name: value for name, value in own.items() if name in known and name in _PLAYED}
    return [
        Layer("defaults", defaults(kind, description.fields)),
        Layer(f"{found.class_name} in {Path(found.file).name}", own),
        *project.file.layers(found.name, kind),
        Layer("the command", command, is_written=True, is_command=True),
    ]


# An evaluation is played as training is, but for how often and from which seed.
_PLAYED = frozenset(known_names("eval")) - {"num_generations", "seed"}


def _with_full_paths(
    config: dict[str, Any],
    description: EnvironmentDescription,
    resolved: Resolved,
    project: Project,
) -> dict[str, Any]:
    """Paths are meant from where they are written: the project's folder, or the caller's."""
    for field in description.fields:
        value = config.get(field.name)
        if field.json_schema.get("format") in _PATHS and isinstance(value, str):
            by_command = resolved.source_of(f"config.{field.name}") == "the command"
            config[field.name] = str((Path.cwd() if by_command else project.root) / value)
    return config


def _refuse_over_budget(budget: Budget, settled: Settled) -> None:
    settings = TrainSettings.model_validate(settled.own())
    steps = settings.max_steps
    file = settled.project.file.document
    if steps is None and (budget.steps or budget.rollouts):
        raise OverBudget(
            f"{file.place_of('budget')}: the project has a budget, so say how long the run is: "
            "set max_steps"
        )
    if budget.steps and steps and steps > budget.steps:
        raise OverBudget(
            f"{file.place_of('budget.steps')}: at most {budget.steps} steps a run; "
            f"max_steps is {steps}"
        )
    if budget.rollouts and steps:
        groups = settings.cases_per_batch * settings.gradient_accumulation_steps
        world = settled.values["processes"] * settled.values["nodes"]
        replaced = settings.replacement_groups
        most = steps * world * (groups + (groups if replaced is None else replaced))
        most *= settings.num_generations
        if most > budget.rollouts:
            raise OverBudget(
                f"{file.place_of('budget.rollouts')}: at most {budget.rollouts:,} rollouts a run; "
                f"this one could play {most:,} (with replacement_groups=0, "
                f"{steps * world * groups * settings.num_generations:,})"
            )
