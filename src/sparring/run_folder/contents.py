"""The typed contents of a run's folder, for both planes: its spec, its summary, its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import MetricsRow
from sparring.contracts.kinds import run_kind
from sparring.contracts.specs import RunSpec
from sparring.contracts.summaries import Summary
from sparring.run_folder.files import read_json_or_empty, read_lines, write_json
from sparring.run_folder.layout import RunFolder

Kind = TypeVar("Kind", bound=Summary)
Model = TypeVar("Model", bound=BaseModel)


def read_run_spec(folder: RunFolder) -> RunSpec:
    """Read and validate a run's spec. Raises InvalidInput for an unknown kind or invalid fields."""
    spec = folder.read_spec()
    kind = run_kind(str(spec.get("kind")), folder.spec)
    return _validated(kind.spec, spec, folder.spec)


def read_summary(folder: RunFolder, kind: type[Kind]) -> Kind:
    """Return a run's summary. Raises InvalidInput if the run has not written one of this kind."""
    content = read_json_or_empty(folder.summary)
    if not content or content.get("kind", "eval") != kind.model_fields["kind"].default:
        raise InvalidInput(f"run {folder.id} has no results to report yet; let it complete first")
    return _validated(kind, content, folder.summary)


def find_summary(folder: RunFolder, kind: type[Kind]) -> Kind | None:
    """Return a run's summary; None if it has none of this kind that can be read."""
    try:
        return read_summary(folder, kind)
    except InvalidInput:
        return None


def _validated(model: type[Model], content: Any, place: Path) -> Model:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{place}: {field}: {first['msg']}") from error


def write_summary(folder: RunFolder, summary: Summary) -> None:
    """Write a run's summary."""
    write_json(folder.summary, summary.as_json())


def read_history_rows(folder: RunFolder) -> list[MetricsRow]:
    """Return one row per step. If an attempt resumed from a checkpoint, the later steps of earlier
    attempts are left out, because they did not lead to the current weights."""
    rows: dict[int, MetricsRow] = {}
    attempt = 0
    for line in read_lines(folder.metrics):
        if line["attempt"] < attempt:
            continue  # a late write by a process of an earlier attempt
        if line["attempt"] > attempt:
            attempt = line["attempt"]
            rows = {step: row for step, row in rows.items() if step < line["step"]}
        rows.setdefault(line["step"], {}).update(line)
    return [rows[step] for step in sorted(rows)]


def sampled(rows: Sequence[MetricsRow], count: int, best: int | None = None) -> list[MetricsRow]:
    """Return `count` evenly spaced rows, including the first and the last. The row of step `best`
    replaces the nearest of the others."""
    if count <= 0:
        return []
    if len(rows) <= count:
        return list(rows)
    if count == 1:
        return [rows[-1]]
    places = [round(number * (len(rows) - 1) / (count - 1)) for number in range(count)]
    wanted = next((place for place, row in enumerate(rows) if row["step"] == best), None)
    if wanted is not None and count > 2 and wanted not in places:
        nearest = min(range(1, count - 1), key=lambda number: abs(places[number] - wanted))
        places[nearest] = wanted
    return [rows[place] for place in places]
