"""Reads the rows of the index from the folders of runs, and converts them to columns and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.json import JsonObject
from sparring.contracts.specs import agent_of_target, is_python_target
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.runs.history import History, HistoryRead, read_history
from sparring.runs.lifecycle import RunState


@dataclass(frozen=True, slots=True)
class Row:
    """One run in the index."""

    id: str
    kind: str
    environment: str
    named_model: str
    launcher: str
    history: History
    cursor: int

    @property
    def model(self) -> str:
        """The model that the spec names, else the one that the run opened."""
        return self.named_model or plain_text(self.history.model)

    @property
    def state(self) -> RunState:
        """The run's state."""
        return self.history.state


def read_row(folder: RunFolder, known: Row | None = None) -> Row | None:
    """Return the row of a run, read from its folder; None if the spec cannot be read. With
    `known`, only the events after its cursor are read."""
    if known is not None:
        read = read_history(folder, HistoryRead(known.history, known.cursor))
        labels = (known.kind, known.environment, known.named_model, known.launcher)
        return Row(known.id, *labels, read.history, read.cursor)
    try:
        spec = read_json(folder.spec)
        policy = spec.get("policy") or {}
        read = read_history(folder)
        return Row(
            folder.id,
            plain_text(spec.get("kind")),
            plain_text(spec.get("environment") or _environment_in(spec)),
            plain_text(policy.get("model")),
            plain_text((spec.get("supervision") or {}).get("launcher") or "local"),
            read.history,
            read.cursor,
        )
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def columns_of(row: Row) -> JsonObject:
    """Return the values of a row by column name."""
    history = row.history
    return {
        "id": row.id,
        "kind": row.kind,
        "environment": row.environment,
        "model": row.named_model,
        "launcher": row.launcher,
        "state": history.state.value,
        "created": history.created,
        "queued": history.queued,
        "cursor": row.cursor,
        "history": json.dumps(history.to_dict()),
    }


def row_of(values: Any) -> Row:
    """Return the row for one row of a query's result."""
    history = History.from_dict(json.loads(values.history))
    labels = (values.kind, values.environment, values.model, values.launcher)
    return Row(values.id, *labels, history, values.cursor)


def plain_text(value: Any) -> str:
    """Return `value` as text that both databases accept: NUL characters and lone surrogates are
    replaced."""
    text = str(value or "").replace("\0", "\ufffd")
    return text.encode("utf-8", "replace").decode("utf-8")


def _environment_in(spec: JsonObject) -> str:
    """Derive the environment's name from the target of a spec without the field `environment`."""
    target = str(spec.get("target") or "")
    if is_python_target(target):
        return agent_of_target(target)
    return Path(target.rpartition(":")[0] or target).stem
