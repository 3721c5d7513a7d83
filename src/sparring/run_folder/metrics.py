"""Metrics as they lie in a run folder: one row per step, whatever attempts it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparring.run_folder.files import read_lines
from sparring.run_folder.layout import RunFolder


def history_of(folder: RunFolder) -> list[dict[str, Any]]:
    """One row per step. Where an attempt went on from a checkpoint, what earlier ones told of
    the steps behind it is left out: it is not the history of the weights that there are."""
    rows: dict[int, dict[str, Any]] = {}
    attempt = 0
    for line in read_lines(folder.metrics):
        if line["attempt"] < attempt:
            continue  # a late word of processes that had been replaced
        if line["attempt"] > attempt:
            attempt = line["attempt"]
            rows = {step: row for step, row in rows.items() if step < line["step"]}
        rows.setdefault(line["step"], {}).update(line)
    return [rows[step] for step in sorted(rows)]


def sampled(
    rows: Sequence[dict[str, Any]], count: int, best: int | None = None
) -> list[dict[str, Any]]:
    """So many rows, evenly spread, the first and the last among them; and the best step's, in the
    place of the one nearest to it."""
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
