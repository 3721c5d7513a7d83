"""The index of runs, in SQLite.

All its content comes from the runs' folders, so it can be deleted at any time. Writers of a folder
do not update it. `page` and `named` first refresh it: they read the runs that the journal names,
the active runs and, if the folder of runs has changed, runs that have appeared.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_from
from sparring.run_folder.layout import is_plain_name
from sparring.runs.index_database import (
    Database,
    Marks,
    MemoryDatabase,
    Row,
    marks_in,
    place_of,
    plain_text,
    read_row,
    rows_of,
)
from sparring.runs.lifecycle import ACTIVE, RunState

_LOG = logging.getLogger(__name__)
_MTIME_SLACK_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Query:
    """Filters for a page of runs, newest first. `after` is the last id of the previous page."""

    states: tuple[RunState, ...] = ()
    environment: str = ""
    kind: str = ""
    after: str = ""
    count: int = 50


Params = ParamSpec("Params")
Result = TypeVar("Result")


def _rebuilds_if_damaged(
    method: Callable[Concatenate[Index, Params], Result],
) -> Callable[Concatenate[Index, Params], Result]:
    """Return a method that restores a damaged or deleted database and then retries once. If the
    database cannot be written, as on a full disk, the method uses one in memory."""

    @wraps(method)
    def wrapper(index: Index, /, *args: Params.args, **kwargs: Params.kwargs) -> Result:
        try:
            return method(index, *args, **kwargs)
        except sqlite3.DatabaseError:
            pass  # it may also be another process that is restoring the database
        try:
            index._database.restore()
            return method(index, *args, **kwargs)
        except (sqlite3.DatabaseError, OSError) as error:
            index._use_memory(error)
            return method(index, *args, **kwargs)

    return wrapper


class Index:
    """The index of one folder of runs."""

    def __init__(self, runs: Path, place: Path | None = None) -> None:
        self.runs = runs
        try:
            self._database = Database(place or place_of(runs))
        except (sqlite3.DatabaseError, OSError) as error:
            self._use_memory(error)

    # ------------------------------------------------------------------ reading

    @_rebuilds_if_damaged
    def page(self, query: Query) -> list[Row]:
        """Return one page of runs, newest first."""
        self.refresh()
        conditions: list[str] = []
        values: list[str | float] = []
        if query.states:
            values += [state.value for state in query.states]
            conditions.append(_one_of(values))
        for column, text in (("environment", query.environment), ("kind", query.kind)):
            if text:
                conditions.append(f"{column} = ?")
                values.append(plain_text(text))
        with self._database.reading() as connection:
            last = connection.execute(
                "SELECT created, id FROM runs WHERE id = ?", (plain_text(query.after),)
            ).fetchone()
            if last is not None:
                conditions.append("(created, id) < (?, ?)")
                values += last
            return _newest(connection, " AND ".join(conditions) or "TRUE", values, query.count)

    @_rebuilds_if_damaged
    def active(self) -> list[Row]:
        """Return the runs that have not ended, longest queued first, as of the last refresh."""
        with self._database.reading() as connection:
            return _active(connection)

    @_rebuilds_if_damaged
    def named(self, beginning: str, count: int = 6) -> list[Row]:
        """Return up to `count` runs whose id begins with `beginning`, newest first. If there are
        none, return runs whose id ends with `-` and these characters, if they are at least 4."""
        self.refresh()
        beginning = plain_text(beginning)
        between = (beginning, f"{beginning}\U0010ffff")
        with self._database.reading() as connection:
            rows = _newest(connection, "id BETWEEN ? AND ?", between, count)
            if not rows and len(beginning) >= 4:
                ending = (f"-{beginning}",)
                rows = _newest(connection, "substr(id, -length(?1)) = ?1", ending, count)
        return rows

    def all(self) -> Iterator[Row]:
        """Yield all runs in the order of their ids, as of the last refresh."""
        with self._database.reading() as connection:
            yield from rows_of(connection, "ORDER BY id")

    # ------------------------------------------------------------------ bringing up to date

    @_rebuilds_if_damaged
    def refresh(self) -> None:
        """Update the rows of runs whose folders have changed since the last refresh."""
        if not self.runs.is_dir():
            return
        mtime = _mtime(self.runs)
        marks, active = self._known()
        if (_size(_journal(self.runs)) or 0) < marks.get("journal", 0):
            self.reindex()  # the journal was deleted, perhaps with unread lines
            return
        journal = read_from(_journal(self.runs), marks.get("journal", 0))
        named = {str(line.get("run", "")) for line in journal.values}
        named = {name for name in named if is_plain_name(name)}
        stale = {name for name in named if RunFolder(self.runs / name).spec.is_file()}
        gone = named - stale
        known = {row.id: row for row in active}
        for row in active:
            size = _size(RunFolder(self.runs / row.id).events)
            if size is None:
                gone.add(row.id)
            elif size != row.cursor:
                stale.add(row.id)
            if size is None or size < row.cursor:
                del known[row.id]  # deleted, or created again under the same id
        if marks.get("folder") != mtime:
            existing, indexed = set(_names(self.runs)), self._ids()
            stale |= existing - indexed
            gone |= indexed - existing
        rows = [row for row in self._read_all(stale, known) if row != known.get(row.id)]
        # A folder created within the clock's resolution leaves the modification time unchanged.
        is_final = time.time_ns() - mtime > _MTIME_SLACK_NS
        new_marks = {"journal": journal.cursor, "folder": mtime if is_final else 0}
        if rows or gone or new_marks != marks:
            self._database.store(rows, gone, new_marks, marks)

    @_rebuilds_if_damaged
    def reindex(self) -> int:
        """Rebuild all rows from the folders; returns the number of runs."""
        journal, mtime = _size(_journal(self.runs)) or 0, _mtime(self.runs)
        rows = self._read_all(set(_names(self.runs)), {})
        marks = {"journal": journal, "folder": mtime}
        self._database.replace(rows, marks)
        return len(rows)

    # ------------------------------------------------------------------ inside

    def _use_memory(self, error: sqlite3.DatabaseError | OSError) -> None:
        """Continue with an index in memory, which is filled from the folders."""
        _LOG.warning(
            "the index of runs cannot be written (%s); until it can be, each command reads all "
            "folders",
            error,
        )
        self._database = MemoryDatabase()

    def _known(self) -> tuple[Marks, list[Row]]:
        with self._database.reading() as connection, connection:
            connection.execute("BEGIN")  # both are read at one point in time
            return marks_in(connection), _active(connection)

    def _ids(self) -> set[str]:
        with self._database.reading() as connection:
            return {name for (name,) in connection.execute("SELECT id FROM runs")}

    def _read_all(self, names: set[str], known: dict[str, Row]) -> list[Row]:
        def read(name: str) -> Row | None:
            try:
                return read_row(RunFolder(self.runs / name), known.get(name))
            except Exception:  # one unreadable folder must not hide all others
                return known.get(name)

        if len(names) < 64:
            return [row for name in sorted(names) if (row := read(name)) is not None]
        with ThreadPoolExecutor(8) as readers:
            return [row for row in readers.map(read, sorted(names)) if row is not None]


def _newest(
    connection: sqlite3.Connection, condition: str, values: Sequence[str | float], count: int
) -> list[Row]:
    clauses = f"WHERE {condition} ORDER BY created DESC, id DESC LIMIT {count}"
    return list(rows_of(connection, clauses, values))


def _active(connection: sqlite3.Connection) -> list[Row]:
    states = [state.value for state in ACTIVE]
    return list(rows_of(connection, f"WHERE {_one_of(states)} ORDER BY queued, id", states))


def _one_of(states: Sequence[object]) -> str:
    return f"state IN ({', '.join('?' * len(states))})"


def _names(runs: Path) -> list[str]:
    if not runs.is_dir():
        return []
    return [name for name in os.listdir(runs) if is_plain_name(name)]  # noqa: PTH208 - names only


def _journal(runs: Path) -> Path:
    return RunFolder(runs / "any").journal


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _size(path: Path) -> int | None:
    """Return a file's size; 0 if the file is missing, None if its folder is missing, too."""
    try:
        return path.stat().st_size
    except OSError:
        return 0 if path.parent.is_dir() else None
