"""Reads the metrics of a run and merges its attempts into one row per step."""

from __future__ import annotations

from collections.abc import Sequence

from sparring.contracts.json import MetricsRow
from sparring.run_folder.files import read_lines
from sparring.run_folder.layout import RunFolder


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
