"""An index of runs, which holds nothing that their folders do not: SQLite, thrown away at will.

Whoever writes into a run's folder need not know of it. A reader brings it up to date first: runs
that the journal names, runs that were active, and, where folders have come or gone without a
word, all names. So it needs no migrations: another version, or a damaged file, is built anew.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sql
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DatabaseError, OperationalError

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_from, read_json
from sparring.run_folder.ids import is_plain_name
from sparring.run_folder.turns import in_turn
from sparring.runs.history import History, Read, read_history
from sparring.runs.index_place import place_of
from sparring.runs.lifecycle import ACTIVE, RunState

VERSION = 1
_BUSY_SECONDS = 30
_MAKING_SECONDS = 5.0
_SETTLED_NS = 50_000_000
_AT_ONCE = 500

_metadata = sql.MetaData()
_runs = sql.Table(
    "runs",
    _metadata,
    sql.Column("id", sql.String, primary_key=True),
    sql.Column("kind", sql.String, nullable=False),
    sql.Column("environment", sql.String, nullable=False),
    sql.Column("model", sql.String, nullable=False),
    sql.Column("launcher", sql.String, nullable=False),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("queued", sql.Float, nullable=False),
    sql.Column("cursor", sql.Integer, nullable=False),
    sql.Column("history", sql.Text, nullable=False),
    sql.Index("newest", "created", "id"),
    sql.Index("newest_by_state", "state", "created", "id"),
    sql.Index("newest_by_environment", "environment", "created", "id"),
)
_marks = sql.Table(
    "marks",
    _metadata,
    sql.Column("name", sql.String, primary_key=True),
    sql.Column("value", sql.Integer, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One run, as the index has it."""

    id: str
    kind: str
    environment: str
    model: str
    launcher: str
    history: History
    cursor: int

    @property
    def state(self) -> RunState:
        return self.history.state


@dataclass(frozen=True, slots=True)
class Query:
    """Newest first. `after` is the last id of the page before."""

    states: tuple[RunState, ...] = ()
    environment: str = ""
    kind: str = ""
    after: str = ""
    count: int = 50


Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def _healing(
    work: Callable[Concatenate[Index, Asked], Answer],
) -> Callable[Concatenate[Index, Asked], Answer]:
    """Where the file turns out to be damaged, it is built anew and asked again."""

    @wraps(work)
    def healed(index: Index, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        try:
            return work(index, *args, **kwargs)
        except OperationalError:
            raise
        except DatabaseError:
            index._heal()
            return work(index, *args, **kwargs)

    return healed


class Index:
    """The runs of one folder."""

    def __init__(self, runs: Path, place: Path | None = None) -> None:
        self.runs = runs
        self._place = place or place_of(runs)
        self._engine = self._opened()

    # ------------------------------------------------------------------ reading

    @_healing
    def page(self, query: Query) -> list[Row]:
        self.refresh()
        chosen = sql.select(_runs).order_by(_runs.c.created.desc(), _runs.c.id.desc())
        if query.states:
            chosen = chosen.where(_runs.c.state.in_([each.value for each in query.states]))
        if query.environment:
            chosen = chosen.where(_runs.c.environment == query.environment)
        if query.kind:
            chosen = chosen.where(_runs.c.kind == query.kind)
        with self._reading() as connection:
            if query.after:
                of = sql.select(_runs.c.created, _runs.c.id).where(_runs.c.id == query.after)
                last = connection.execute(of).one_or_none()
                if last is not None:
                    before = sql.tuple_(_runs.c.created, _runs.c.id) < (last.created, last.id)
                    chosen = chosen.where(before)
            return [_row(each) for each in connection.execute(chosen.limit(query.count))]

    @_healing
    def active(self) -> list[Row]:
        """All that have not ended, the longest waiting first, as of the last refresh."""
        wanted = [each.value for each in ACTIVE]
        order = (_runs.c.queued, _runs.c.id)
        chosen = sql.select(_runs).where(_runs.c.state.in_(wanted)).order_by(*order)
        with self._reading() as connection:
            return [_row(each) for each in connection.execute(chosen)]

    @_healing
    def named(self, beginning: str, count: int = 6) -> list[Row]:
        """Runs whose id begins, or ends, with these letters; newest first."""
        self.refresh()
        starts = _runs.c.id.between(beginning, f"{beginning}\U0010ffff")
        order = (_runs.c.created.desc(), _runs.c.id.desc())
        with self._reading() as connection:
            found = connection.execute(
                sql.select(_runs).where(starts).order_by(*order).limit(count)
            )
            rows = [_row(each) for each in found]
            if not rows and len(beginning) >= 4:
                ends = _runs.c.id.endswith(f"-{beginning}", autoescape=True)
                found = connection.execute(
                    sql.select(_runs).where(ends).order_by(*order).limit(count)
                )
                rows = [_row(each) for each in found]
        return rows

    def all(self) -> Iterator[Row]:
        with self._reading() as connection:
            for each in connection.execute(sql.select(_runs).order_by(_runs.c.id)):
                yield _row(each)

    # ------------------------------------------------------------------ bringing up to date

    @_healing
    def refresh(self) -> None:
        """Read what has changed in the folders since the last time."""
        if not self.runs.is_dir():
            return
        seen = _mtime(self.runs)
        marks, known = self._known()
        if (_size(_journal(self.runs)) or 0) < marks.get("journal", 0):
            self.reindex()  # the journal was thrown away: who knows what it said
            return
        journal = read_from(_journal(self.runs), marks.get("journal", 0))
        named = {str(each.get("run", "")) for each in journal.values}
        named = {name for name in named if is_plain_name(name)}
        stale = {name for name in named if RunFolder(self.runs / name).spec.is_file()}
        gone = named - stale
        for row in known:
            size = _size(RunFolder(self.runs / row.id).events)
            if size is None:
                gone.add(row.id)
            elif size != row.cursor:
                stale.add(row.id)
        if marks.get("folder") != seen:
            there, indexed = set(_names(self.runs)), self._ids()
            stale |= there - indexed
            gone |= indexed - there
        before = {row.id: row for row in known}
        rows = [row for row in self._read_all(stale, before) if row != before.get(row.id)]
        is_settled = time.time_ns() - seen > _SETTLED_NS
        now = {"journal": journal.cursor, "folder": seen if is_settled else 0}
        if rows or gone or now != marks:
            self._store(rows, gone, now)

    @_healing
    def reindex(self) -> int:
        """Everything anew, from the folders alone. Returns how many runs there are."""
        journal, seen = _size(_journal(self.runs)) or 0, _mtime(self.runs)
        rows = self._read_all(set(_names(self.runs)), {})
        there = {row.id for row in rows}
        self._store(rows, self._ids() - there, {"journal": journal, "folder": seen})
        return len(rows)

    # ------------------------------------------------------------------ inside

    def _reading(self) -> sql.Connection:
        return self._engine.connect().execution_options(writes=False)

    def _known(self) -> tuple[dict[str, int], list[Row]]:
        with self._reading() as connection:
            marks = connection.execute(sql.select(_marks.c.name, _marks.c.value))
            found = {name: int(value) for name, value in marks}
        return found, self.active()

    def _ids(self) -> set[str]:
        with self._reading() as connection:
            return set(connection.execute(sql.select(_runs.c.id)).scalars())

    def _read_all(self, names: set[str], known: dict[str, Row]) -> list[Row]:
        def read(name: str) -> Row | None:
            try:
                return read_row(RunFolder(self.runs / name), known.get(name))
            except Exception:  # one folder that cannot be read must not hide all others
                return known.get(name)

        if len(names) < 64:
            return [row for name in sorted(names) if (row := read(name)) is not None]
        with ThreadPoolExecutor(8) as readers:
            return [row for row in readers.map(read, sorted(names)) if row is not None]

    def _store(self, rows: list[Row], gone: set[str], marks: dict[str, int]) -> None:
        """All in one transaction. A row never goes back to an earlier reading of its folder:
        two readers may come in either order."""
        made = insert(_runs)
        values = {
            each.name: made.excluded[each.name] for each in _runs.columns if each.name != "id"
        }
        newer = made.excluded.cursor >= _runs.c.cursor
        upsert = made.on_conflict_do_update(index_elements=["id"], set_=values, where=newer)
        mark = insert(_marks)
        put = mark.on_conflict_do_update(
            index_elements=["name"], set_={"value": mark.excluded.value}
        )
        with self._engine.begin() as connection:
            for start in range(0, len(rows), _AT_ONCE):
                part = [_values(row) for row in rows[start : start + _AT_ONCE]]
                connection.execute(upsert, part)
            names = sorted(gone)
            for start in range(0, len(names), _AT_ONCE):
                some = names[start : start + _AT_ONCE]
                connection.execute(sql.delete(_runs).where(_runs.c.id.in_(some)))
            connection.execute(
                put, [{"name": name, "value": value} for name, value in marks.items()]
            )

    def _opened(self) -> sql.Engine:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._made()
        except OperationalError:
            raise  # busy, or no room: the file itself is sound
        except DatabaseError:
            self._throw_away()
            return self._made()

    def _made(self) -> sql.Engine:
        engine = _engine(self._place)
        # Making one is for one process: two cannot even enter WAL mode at once.
        with in_turn(self._place.parent / "index.lock", _MAKING_SECONDS):
            with engine.connect().execution_options(writes=False) as connection:
                version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            if version != VERSION:
                with engine.begin() as connection:
                    _metadata.drop_all(connection)
                    _metadata.create_all(connection)
                    connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
        return engine

    def _throw_away(self) -> None:
        for end in ("", "-wal", "-shm"):
            Path(f"{self._place}{end}").unlink(missing_ok=True)

    def _heal(self) -> None:
        self._throw_away()
        self._engine = self._made()


def read_row(folder: RunFolder, known: Row | None = None) -> Row | None:
    """A run as its folder tells it; None where there is none that can be read."""
    if known is not None:
        read = read_history(folder, Read(known.history, known.cursor))
        about = (known.kind, known.environment, known.model, known.launcher)
        return Row(known.id, *about, read.history, read.cursor)
    try:
        spec = read_json(folder.spec)
        policy = spec.get("policy") or {}
        read = read_history(folder)
        return Row(
            folder.id,
            str(spec.get("kind") or ""),
            str(spec.get("environment") or _name_in(spec)),
            str(policy.get("model") or ""),
            str((spec.get("supervision") or {}).get("launcher") or "local"),
            read.history,
            read.cursor,
        )
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def _engine(place: Path) -> sql.Engine:
    engine = sql.create_engine(
        f"sqlite:///{place}",
        connect_args={"timeout": _BUSY_SECONDS, "isolation_level": None},
        poolclass=sql.NullPool,  # the file may be replaced by another process
    )

    @sql.event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    @sql.event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        # Two readers that both mean to write would else wait for each other.
        is_writing = connection.get_execution_options().get("writes", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")

    return engine.execution_options(writes=True)


def _values(row: Row) -> dict[str, Any]:
    history = row.history
    return {
        "id": row.id,
        "kind": row.kind,
        "environment": row.environment,
        "model": row.model,
        "launcher": row.launcher,
        "state": history.state.value,
        "created": history.created,
        "queued": history.queued,
        "cursor": row.cursor,
        "history": json.dumps(history.to_dict()),
    }


def _row(values: Any) -> Row:
    history = History.from_dict(json.loads(values.history))
    about = (values.kind, values.environment, values.model, values.launcher)
    return Row(values.id, *about, history, values.cursor)


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
    """Of a run's events; None where the run itself is gone."""
    try:
        return path.stat().st_size
    except OSError:
        return 0 if path.parent.is_dir() else None


def _name_in(spec: dict[str, Any]) -> str:
    """The environment's name, of a run that was started before specs had it."""
    target = str(spec.get("target") or "")
    if target.startswith("(python) "):
        return target.removeprefix("(python) ")
    return Path(target.rpartition(":")[0] or target).stem
