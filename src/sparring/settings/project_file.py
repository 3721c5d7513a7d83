"""The tables of a project file: folders, settings, locks, budget. Unknown tables are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, ValidationError

from sparring.contracts.errors import InvalidInput
from sparring.contracts.specs import Frozen, Table
from sparring.settings.document import ParsedFile
from sparring.settings.fields import PLAYED, known_names, nearest, normalised, refuse_unknown
from sparring.settings.layers import Layer
from sparring.settings.locks import DEFAULT_LOCKS, UNSET, Lock
from sparring.settings.names import covers

_TABLES = ("project", "settings", "sampling", "eval", "environment", "lock", "budget", "operators")

_AT_ONCE, _PER_DAY = 2, 50  # limits of operators, unless the project sets its own


class ProjectTable(Frozen):
    """The `[project]` table: the folders of environments and runs."""

    look_in: tuple[str, ...] = Field(default=(".",), description="folders with environments")
    runs: str = Field(default="runs", description="folder that holds the runs")


class Budget(Frozen):
    """The `[budget]` table: limits of each run, and of all runs together."""

    steps: int | None = Field(default=None, ge=1, description="optimizer steps of one run")
    rollouts: int | None = Field(default=None, ge=1, description="rollouts of one run")
    hours: float | None = Field(default=None, gt=0, description="hours of one run")
    runs_at_once: int | None = Field(default=None, ge=1, description="runs at the same time")
    starts_per_day: int | None = Field(
        default=None, ge=0, description="runs that operators start or resume in 24 hours"
    )

    def for_operators(self) -> Budget:
        """Return the budget for operators. If the project does not set them, `runs_at_once` is 2
        and `starts_per_day` is 50."""
        limits = {
            "runs_at_once": self.runs_at_once or _AT_ONCE,
            "starts_per_day": _PER_DAY if self.starts_per_day is None else self.starts_per_day,
        }
        return self.model_copy(update=limits)


class LockTable(Frozen):
    """A `[[lock]]` table: a setting that nobody may change, in one environment or in all."""

    field: str = Field(min_length=1)
    value: Any = None
    author: str = ""
    reason: str = ""
    environment: str = ""


class OperatorsTable(Frozen):
    """The `[operators]` table: permissions of operators."""

    may_set: tuple[str, ...] = Field(
        default=(), description="fields locked by default that operators may set"
    )


class EnvironmentTable(Frozen):
    """An `[environment.NAME]` table: settings, config and evaluation settings of one
    environment."""

    settings: Table = Field(default_factory=dict)
    config: Table = Field(default_factory=dict)
    eval: Table = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A project file whose table and setting names have been checked. The values of settings are
    checked when a run is resolved."""

    document: ParsedFile
    project: ProjectTable = field(default_factory=ProjectTable)
    budget: Budget = field(default_factory=Budget)
    operators: OperatorsTable = field(default_factory=OperatorsTable)
    settings: Table = field(default_factory=dict)
    sampling: Table = field(default_factory=dict)
    eval: Table = field(default_factory=dict)
    environments: Mapping[str, EnvironmentTable] = field(default_factory=dict)
    locks: tuple[LockTable, ...] = ()

    def layers(self, environment: str, kind: str) -> list[Layer]:
        """Return the layers for a run of an environment, lowest first.

        The order is: `sampling` (training only), general settings, settings of the environment,
        general and then the environment's evaluation settings (evaluations only), config.
        """
        parts = [("settings", self.settings)]
        below = [self._nested_layer("sampling", self.sampling)] if kind == "train" else []
        own = self.environments.get(environment, EnvironmentTable())
        table = f"environment.{environment}"
        parts += [(f"{table}.settings", own.settings)]
        if kind == "eval":
            parts = [  # without `num_generations` and `seed`, which evaluations do not inherit
                (name, {field: value for field, value in values.items() if field in PLAYED})
                for name, values in parts
            ]
            parts += [("eval", self.eval), (f"{table}.eval", own.eval)]
        layers = [*below, *(self._layer(name, values) for name, values in parts)]
        if own.config:
            layers.append(self._nested_layer("config", own.config, f"{table}.config"))
        return layers

    def locks_for(self, environment: str) -> tuple[Lock, ...]:
        """Return the locks that apply to an environment."""
        return tuple(
            Lock(
                field=each.field,
                source=self.document.place_of(f"lock.{number}.field"),
                value=_expanded_value(each) if "value" in each.model_fields_set else UNSET,
                author=each.author,
                reason=each.reason,
            )
            for number, each in enumerate(self.locks)
            if each.environment in ("", environment)
        )

    def misnamed(self, known: Sequence[str]) -> str:
        """Return an error text for the first environment in the file that is not in `known`; empty
        if all are."""
        named = [(f"environment.{name}", name) for name in self.environments]
        named += [(f"lock.{n}.environment", each.environment) for n, each in enumerate(self.locks)]
        for place, name in named:
            if name and name not in known:
                hint = nearest(name, known) or f"there are {', '.join(known[:10])}"
                where = self.document.place_of(place)
                return f"{where}: there is no environment {name!r}; {hint}"
        return ""

    def _nested_layer(self, setting: str, values: Table, table: str = "") -> Layer:
        """Return a layer that sets the fields of one setting from a separate table: `table`, by
        default the table with the setting's name."""
        places = {
            f"{setting}.{name}": place
            for name, place in self.document.places_below(table or setting).items()
        }
        given = {setting: dict(values)} if values else {}
        return Layer(self.document.name, given, places, is_written=True)

    def _layer(self, table: str, values: Table) -> Layer:
        places = self.document.places_below(table)
        return Layer(self.document.name, normalised(values), places, is_written=True)


def read_project_file(document: ParsedFile) -> ProjectFile:
    """Check a document and return its tables. Raises InvalidInput or SettingError with the field,
    its line and the nearest valid name."""
    tables = document.tables
    for name in tables:
        if name not in _TABLES:
            hint = nearest(name, _TABLES) or f"there are {', '.join(_TABLES)}"
            raise InvalidInput(f"{document.place_of(name)}: {name}: there is no such table; {hint}")
    environments = _table(document, "environment")
    locks = tables.get("lock", [])
    if not isinstance(locks, list):
        raise InvalidInput(
            f"{document.place_of('lock')}: lock: write each lock as [[lock]] with field, value, "
            "author and reason"
        )
    file = ProjectFile(
        document=document,
        project=_model(document, "project", ProjectTable, _table(document, "project")),
        budget=_model(document, "budget", Budget, _table(document, "budget")),
        operators=_model(document, "operators", OperatorsTable, _table(document, "operators")),
        settings=_table(document, "settings"),
        sampling=_table(document, "sampling"),
        eval=_table(document, "eval"),
        environments={
            name: _model(document, f"environment.{name}", EnvironmentTable, values)
            for name, values in environments.items()
        },
        locks=tuple(
            _model(document, f"lock.{number}", LockTable, values)
            for number, values in enumerate(locks)
        ),
    )
    _refuse_unknown_settings(file)
    return file


def _refuse_unknown_settings(file: ProjectFile) -> None:
    tables = [("settings", file.settings, "train"), ("eval", file.eval, "eval")]
    for name, own in file.environments.items():
        tables.append((f"environment.{name}.settings", own.settings, "train"))
        tables.append((f"environment.{name}.eval", own.eval, "eval"))
    for table, values, kind in tables:
        known = [name for name in known_names(kind) if name != "config"]  # type: ignore[arg-type]
        for name in values:
            place = file.document.place_of(f"{table}.{name}")
            if name == "config":
                raise InvalidInput(
                    f"{place}: config belongs to one environment: write [environment.NAME.config]"
                )
            refuse_unknown([name], place, known)
    known = known_names("train")
    for number, lock in enumerate(file.locks):
        place = file.document.place_of(f"lock.{number}.field")
        refuse_unknown([lock.field.partition(".")[0]], place, known)
    for name in file.operators.may_set:
        place = file.document.place_of("operators.may_set")
        if name.partition(".")[0] != "config" and not any(
            covers(name, field) for field in DEFAULT_LOCKS
        ):
            hint = nearest(name, DEFAULT_LOCKS) or f"locked by default: {', '.join(DEFAULT_LOCKS)}"
            raise InvalidInput(f"{place}: may_set: {name} is not locked by default; {hint}")


def _table(document: ParsedFile, name: str) -> Table:
    value = document.tables.get(name, {})
    if not isinstance(value, dict):
        raise InvalidInput(
            f"{document.place_of(name)}: {name} must be a table, not {str(value)[:80]!r}"
        )
    return value


def _model(document: ParsedFile, table: str, kind: type[Any], values: Any) -> Any:
    if not isinstance(values, dict):
        raise InvalidInput(
            f"{document.place_of(table)}: {table} must be a table, not {str(values)[:80]!r}"
        )
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"]))
        place = document.place_of(f"{table}.{name}")
        if problem["type"] == "extra_forbidden":
            known = list(kind.model_fields)
            hint = nearest(name, known) or f"there are {', '.join(known)}"
            raise InvalidInput(f"{place}: {table}.{name}: no such field; {hint}") from error
        raise InvalidInput(f"{place}: {table}.{name}: {problem['msg']}") from error


def _expanded_value(lock: LockTable) -> Any:
    return normalised({lock.field: lock.value})[lock.field]
