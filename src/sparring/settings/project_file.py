"""The project file: its tables with the line of every value, and its JSON Schema.

The tables hold folders, settings, locks and the budget. Unknown tables are refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel, Field, ValidationError

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import Frozen, Table
from sparring.contracts.training import Action, SamplingServers
from sparring.settings.fields import MODELS, PLAYED, Kind, known_names, nearest, refuse_unknown
from sparring.settings.layers import Layer, normalised, refuse_unsafe_values
from sparring.settings.locks import DEFAULT_LOCKS, UNSET, Lock, covers

_LONG = 100  # lines
_MAY_END = re.compile(r"""[]}"']\s*(#.*)?$""")  # a line that can end a statement of several lines


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The tables of a file, and the line of each dotted name in them."""

    name: str
    tables: Table
    lines: Mapping[str, int]

    def place_of(self, dotted: str) -> str:
        """Return `FILE:LINE` of a name, else of the first value inside it, else of the nearest
        table around it; the name of the file if there is none."""
        inside = [line for name, line in self.lines.items() if name.startswith(f"{dotted}.")]
        if dotted not in self.lines and inside:
            return f"{self.name}:{min(inside)}"
        parts = dotted.split(".")
        while parts:
            if line := self.lines.get(".".join(parts)):
                return f"{self.name}:{line}"
            parts.pop()
        return self.name

    def places_below(self, prefix: str) -> dict[str, str]:
        """Return the place of each value in a table, by its name relative to the table. The empty
        name maps to the place of the table."""
        start = f"{prefix}."
        places = {
            name.removeprefix(start): f"{self.name}:{line}"
            for name, line in self.lines.items()
            if name.startswith(start)
        }
        return {"": self.place_of(prefix), **places}


def parse(text: str, name: str) -> ParsedFile:
    """Parse the TOML text of a file. Raises InvalidInput with the line of a syntax error."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        place = f"{name}:{line.group(1)}" if line else name
        raise InvalidInput(f"{place}: this is not TOML: {error or 'nested too deeply'}") from error
    refuse_unsafe_values(tables, name)
    return ParsedFile(name, tables, _toml_lines(text))


def _toml_lines(text: str) -> dict[str, int]:
    """Return the line of each key in a valid TOML text, by dotted name.

    The text is split into statements, the shortest runs of lines that tomllib can parse, so that
    strings and brackets need no parser here. Keys inside an inline table of several keys are left
    out.
    """
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table: list[str] = []
    rows = text.replace("\r\n", "\n").split("\n")
    start = depth = 0
    for end, row in enumerate(rows, 1):
        if end - start == 1:
            depth = 0
        depth += sum(map(row.count, "[{")) - sum(map(row.count, "]}"))
        if end - start > 1 and not _MAY_END.search(row):
            continue
        if end - start > _LONG and depth > 0:  # parsing after every line would take quadratic time
            continue
        try:
            node: Any = tomllib.loads("\n".join(rows[start:end]))
        except ValueError:
            continue
        first, start = start, end
        is_header = rows[first].lstrip().startswith("[")
        names = [] if is_header else list(table)
        while isinstance(node, dict) and len(node) == 1:
            ((key, node),) = node.items()
            names.append(key)
            dotted = ".".join(names)
            if is_header and isinstance(node, list):
                counts[dotted] = counts.get(dotted, -1) + 1
                node = node[0]
            if is_header and dotted in counts:
                names.append(str(counts[dotted]))
            else:
                lines.setdefault(dotted, first + 1)
        if is_header:
            table = names
            lines.setdefault(".".join(names), first + 1)
    return lines


# ------------------------------------------------------------------ tables

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

    @property
    def normalised_value(self) -> Any:
        """The value with a short form expanded, or UNSET if the table has none."""
        if "value" not in self.model_fields_set:
            return UNSET
        return normalised({self.field: self.value})[self.field]


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


class ProjectTables(Frozen):
    """All tables of a project file."""

    project: ProjectTable = ProjectTable()
    settings: Table = Field(default_factory=dict)
    sampling: Table = Field(default_factory=dict)
    eval: Table = Field(default_factory=dict)
    environment: dict[str, EnvironmentTable] = Field(default_factory=dict)
    lock: tuple[LockTable, ...] = ()
    budget: Budget = Budget()
    operators: OperatorsTable = OperatorsTable()


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A project file whose table and setting names have been checked. The values of settings are
    checked when a run is resolved."""

    document: ParsedFile
    tables: ProjectTables = field(default_factory=ProjectTables)

    def layers(self, environment: str, kind: str) -> list[Layer]:
        """Return the layers for a run of an environment, lowest first.

        The order is: `sampling` (training only), general settings, settings of the environment,
        general and then the environment's evaluation settings (evaluations only), config.
        """
        parts = [("settings", self.tables.settings)]
        below = [self._nested_layer("sampling", self.tables.sampling)] if kind == "train" else []
        own = self.tables.environment.get(environment, EnvironmentTable())
        table = f"environment.{environment}"
        parts += [(f"{table}.settings", own.settings)]
        if kind == "eval":
            parts = [  # without `num_generations` and `seed`, which evaluations do not inherit
                (name, {field: value for field, value in values.items() if field in PLAYED})
                for name, values in parts
            ]
            parts += [("eval", self.tables.eval), (f"{table}.eval", own.eval)]
        layers = [*below, *(self._layer(name, values) for name, values in parts)]
        if own.config:
            layers.append(self._nested_layer("config", own.config, f"{table}.config"))
        return layers

    def budget_for(self, *, is_owner: bool) -> Budget:
        """Return the budget, with operators' defaults unless `is_owner`."""
        return self.tables.budget if is_owner else self.tables.budget.for_operators()

    def locks_for(self, environment: str) -> tuple[Lock, ...]:
        """Return the locks that apply to an environment."""
        return tuple(
            Lock(
                field=each.field,
                source=self.document.place_of(f"lock.{number}.field"),
                value=each.normalised_value,
                author=each.author,
                reason=each.reason,
            )
            for number, each in enumerate(self.tables.lock)
            if each.environment in ("", environment)
        )

    def misnamed(self, known: Sequence[str]) -> str:
        """Return an error text for the first environment in the file that is not in `known`; empty
        if all are."""
        named = [(f"environment.{name}", name) for name in self.tables.environment]
        named += [
            (f"lock.{n}.environment", each.environment) for n, each in enumerate(self.tables.lock)
        ]
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
    try:
        file = ProjectFile(document, ProjectTables.model_validate(document.tables))
    except ValidationError as error:
        raise InvalidInput(_error_text(document, error)) from error
    _refuse_unknown_settings(file)
    return file


def _error_text(document: ParsedFile, error: ValidationError) -> str:
    problem = error.errors()[0]
    path = [str(part) for part in problem["loc"]]
    name = ".".join(path)
    place = document.place_of(name)
    match problem["type"]:
        case "extra_forbidden":
            known = list(_model_of(path[:-1]).model_fields)
            hint = nearest(path[-1], known) or f"there are {', '.join(known)}"
            what = "no such field" if path[1:] else "there is no such table"
            return f"{place}: {name}: {what}; {hint}"
        case "model_type" | "dict_type":
            return f"{place}: {name} must be a table, not {str(problem['input'])[:80]!r}"
        case "tuple_type" if name == "lock":
            return (
                f"{place}: lock: write each lock as [[lock]] with field, value, author and reason"
            )
    return f"{place}: {name}: {problem['msg']}"


def _model_of(path: Sequence[str]) -> type[BaseModel]:
    """Return the model of a table."""
    match path:
        case []:
            return ProjectTables
        case ["environment", *_]:
            return EnvironmentTable
        case ["lock", *_]:
            return LockTable
    return type(getattr(ProjectTables(), path[0]))


def _refuse_unknown_settings(file: ProjectFile) -> None:
    tables = file.tables
    settings: list[tuple[str, Table, Kind]] = [
        ("settings", tables.settings, "train"),
        ("eval", tables.eval, "eval"),
    ]
    for name, own in tables.environment.items():
        settings.append((f"environment.{name}.settings", own.settings, "train"))
        settings.append((f"environment.{name}.eval", own.eval, "eval"))
    for table, values, kind in settings:
        known = [name for name in known_names(kind) if name != "config"]
        for name in values:
            place = file.document.place_of(f"{table}.{name}")
            if name == "config":
                raise InvalidInput(
                    f"{place}: config belongs to one environment: write [environment.NAME.config]"
                )
            refuse_unknown([name], place, known)
    known = known_names("train")
    for number, lock in enumerate(tables.lock):
        place = file.document.place_of(f"lock.{number}.field")
        refuse_unknown([lock.field.partition(".")[0]], place, known)
    for name in tables.operators.may_set:
        place = file.document.place_of("operators.may_set")
        if name.partition(".")[0] != "config" and not any(
            covers(name, field) for field in DEFAULT_LOCKS
        ):
            hint = nearest(name, DEFAULT_LOCKS) or f"locked by default: {', '.join(DEFAULT_LOCKS)}"
            raise InvalidInput(f"{place}: may_set: {name} is not locked by default; {hint}")


# ------------------------------------------------------------------ JSON Schema, for editors


def project_file_schema() -> JsonObject:
    """Return the JSON Schema of a project file, built from the models that validate the file."""
    definitions: JsonObject = {}
    settings = _settings("train", definitions)
    evaluation = _settings("eval", definitions)
    environment = _closed(
        {
            "settings": settings,
            "eval": evaluation,
            "config": {"type": "object", "description": "fields of the environment's own config"},
        }
    )
    tables = {
        "project": _schema_of(ProjectTable, definitions),
        "settings": settings,
        "sampling": _schema_of(SamplingServers, definitions),
        "eval": {**evaluation, "description": "settings of evaluations; override [settings]"},
        "environment": {
            "type": "object",
            "additionalProperties": environment,
            "description": "settings and config of one environment, by its name",
        },
        "lock": {"type": "array", "items": _schema_of(LockTable, definitions)},
        "budget": _schema_of(Budget, definitions),
        "operators": _schema_of(OperatorsTable, definitions),
    }
    actions = {"enum": list(get_args(Action)), "description": "the guard's action"}
    definitions["Guard"] = {"anyOf": [actions, definitions["Guard"]]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sparring.toml",
        **_closed(tables),
        "$defs": definitions,
    }


def _settings(kind: Kind, definitions: JsonObject) -> JsonObject:
    properties: JsonObject = {}
    for model in MODELS[kind]:
        properties |= _schema_of(model, definitions)["properties"]
    return _closed(properties)


def _schema_of(model: type[BaseModel], definitions: JsonObject) -> JsonObject:
    schema = model.model_json_schema()
    definitions |= schema.pop("$defs", {})
    return _short_forms(schema)


def _short_forms(schema: JsonObject) -> JsonObject:
    """Add the short forms that validators accept, such as `warm_start = "demos.jsonl"`."""
    properties = schema.get("properties", {})
    if "warm_start" in properties:
        properties["warm_start"]["anyOf"].insert(0, {"type": "string"})
    if "sampling" in properties:
        addresses = {"type": "array", "items": {"type": "string"}}
        properties["sampling"]["anyOf"] += [{"type": "integer"}, {"type": "string"}, addresses]
    if "report_to" in properties:
        table = properties["report_to"]
        properties["report_to"] = {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": table.get("description", ""),
        }
    return schema


def _closed(properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties, "additionalProperties": False}
