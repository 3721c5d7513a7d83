"""The rows of the index of runs, and the SQLite file that holds them.

SQLite needs the locks of a local disk. If the folder of runs is on a network file system, each host
has a file of its own in a folder that only this user can access, because operations trust its
content. There are no migrations: another version starts with empty tables, which the index fills
from the folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import agent_of_target, is_python_target
from sparring.run_folder import RunFolder
from sparring.run_folder.files import file_lock, read_json
from sparring.runs.history import History, HistoryRead, read_history
from sparring.runs.lifecycle import RunState

Marks = dict[str, int]

_NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "9p", "virtiofs", "afs",
)  # fmt: skip
_VERSION = 4
_BUSY_SECONDS = 30.0
_LOCK_SECONDS = 5.0
# The columns of a row, and those that only queries use.
_COLUMNS = "id, kind, environment, model, launcher, history, cursor"
_ALL_COLUMNS = f"{_COLUMNS}, state, created, queued"
_TABLES = f"""
BEGIN IMMEDIATE;
DROP TABLE IF EXISTS runs;
DROP TABLE IF EXISTS marks;
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    environment TEXT NOT NULL,
    model TEXT NOT NULL,
    launcher TEXT NOT NULL,
    history TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    state TEXT NOT NULL,
    created REAL NOT NULL,
    queued REAL NOT NULL
);
CREATE INDEX newest ON runs (created, id);
CREATE INDEX newest_by_state ON runs (state, created, id);
CREATE INDEX newest_by_environment ON runs (environment, created, id);
CREATE TABLE marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_UPSERT = f"""
INSERT INTO runs ({_ALL_COLUMNS}) VALUES ({", ".join("?" * 10)})
ON CONFLICT (id) DO UPDATE SET
    ({_ALL_COLUMNS}) = ({", ".join(f"excluded.{name}" for name in _ALL_COLUMNS.split(", "))})
WHERE excluded.cursor >= runs.cursor
   OR excluded.created != runs.created  -- a new run with the id of a deleted one
"""  # noqa: S608 - names of columns


def place_of(runs: Path) -> Path:
    """Return a path inside the folder of runs. If that folder is on a network file system or not
    writable, return a path in a private local folder."""
    beside = runs / ".sparring"
    is_writable = os.access(beside if beside.is_dir() else runs, os.W_OK)
    if not _is_on_network(runs) and (is_writable or not runs.is_dir()):
        return runs / ".sparring" / "index.sqlite"
    name = sha256(str(runs.resolve()).encode()).hexdigest()[:16]
    return _private_folder() / f"index-{name}.sqlite"


def _private_folder() -> Path:
    """Return a local folder that only this user can access."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if _is_on_network(home):
        home = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = home / f"sparring-indexes-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_ours or status.st_mode & 0o077:
        raise InvalidInput(
            f"{folder} is open to other users; remove it, or set XDG_CACHE_HOME to another folder"
        )
    return folder


def _is_on_network(path: Path) -> bool:
    """Return whether /proc/mounts names a file system for a path that several hosts may mount."""
    here, kind, length = str(path.resolve()), "", -1
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, found, *_ = line.split(" ")
            is_above = here == mount or here.startswith(mount.rstrip("/") + "/")
            if is_above and len(mount) > length:
                kind, length = found, len(mount)
    return kind in _NETWORK or kind.startswith("fuse.")


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


def _values_of(row: Row) -> tuple[str | float, ...]:
    """Return the values of `_ALL_COLUMNS`."""
    history = row.history
    return (
        row.id,
        row.kind,
        row.environment,
        row.named_model,
        row.launcher,
        json.dumps(history.to_dict()),
        row.cursor,
        history.state.value,
        history.created,
        history.queued,
    )


def plain_text(value: Any) -> str:
    """Return `value` as text that SQLite accepts: NUL characters and lone surrogates are
    replaced."""
    text = str(value or "").replace("\0", "\ufffd")
    return text.encode("utf-8", "replace").decode("utf-8")


def _environment_in(spec: JsonObject) -> str:
    """Derive the environment's name from the target of a spec without the field `environment`."""
    target = str(spec.get("target") or "")
    if is_python_target(target):
        return agent_of_target(target)
    return Path(target.rpartition(":")[0] or target).stem


class Database:
    """The tables of an index in an SQLite file. A damaged file and tables of another version are
    replaced by empty tables."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not self._is_sound():
            self.restore()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a connection. It is closed after the body, because another process may replace the
        file."""
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            yield connection
        finally:
            connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a connection in a transaction that excludes other writers."""
        with self.reading() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    def store(self, rows: Sequence[Row], gone: set[str], marks: Marks, known: Marks) -> None:
        """Write `rows` and delete the runs in `gone`, in one transaction. A row with a smaller
        cursor never replaces one of the same run with a larger cursor: readers may finish in any
        order. `marks` are written if they are still as `known`; they are not if the tables have
        been emptied since."""
        with self.writing() as connection:
            connection.executemany(_UPSERT, map(_values_of, rows))
            connection.executemany("DELETE FROM runs WHERE id = ?", [(name,) for name in gone])
            if marks_in(connection) == known:
                _write_marks(connection, marks)

    def replace(self, rows: Sequence[Row], marks: Marks) -> None:
        """Write `rows` and `marks` in place of all that there are, in one transaction."""
        with self.writing() as connection:
            connection.execute("DELETE FROM runs")
            connection.executemany(_UPSERT, map(_values_of, rows))
            _write_marks(connection, marks)

    def restore(self) -> None:
        """Make the tables anew and empty, unless they are sound, as another process may have done
        so. A file that is no database is replaced."""
        with file_lock(self._path.parent / "index.lock", _LOCK_SECONDS):
            if self._is_sound(thoroughly=True):
                return
            if not self._path.is_file():
                self._delete_files()
            try:
                self._create_tables()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._delete_files()
                self._create_tables()

    def _is_sound(self, *, thoroughly: bool = False) -> bool:
        if not self._path.is_file():
            return False
        try:
            with self.reading() as connection:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version == _VERSION and thoroughly:
                    connection.execute("SELECT 1 FROM runs, marks LIMIT 1")
                    (answer,) = connection.execute("PRAGMA quick_check").fetchone()
                    return str(answer) == "ok"
                return int(version) == _VERSION
        except sqlite3.DatabaseError as error:
            if _is_damage(error):
                return False
            raise

    def _create_tables(self) -> None:
        with self.reading() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_TABLES)

    def _delete_files(self) -> None:
        # The database goes first: SQLite ignores a log that it finds beside an empty file.
        for path in (self._path, Path(f"{self._path}-wal"), Path(f"{self._path}-shm")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


class MemoryDatabase(Database):
    """The tables of an index in memory."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        self._connection.executescript(_TABLES)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Return the only connection."""
        yield self._connection

    def restore(self) -> None:
        """Nothing damages memory."""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether the file is no database, is damaged or lacks a table. A file that is busy,
    cannot grow or may not be opened is not damaged."""
    damages = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    code = getattr(error, "sqlite_errorcode", 0)  # Python's own errors have none
    return code & 0xFF in damages  # the other bits give details


def marks_in(connection: sqlite3.Connection) -> Marks:
    """Return how far the journal and the folder of runs have been read."""
    return dict(connection.execute("SELECT name, value FROM marks"))


def _write_marks(connection: sqlite3.Connection, marks: Marks) -> None:
    connection.executemany("REPLACE INTO marks VALUES (?, ?)", marks.items())


def rows_of(
    connection: sqlite3.Connection, clauses: str, values: Sequence[str | float] = ()
) -> Iterator[Row]:
    """Yield the rows that `SELECT … FROM runs` finds with these clauses."""
    query = f"SELECT {_COLUMNS} FROM runs {clauses}"  # noqa: S608 - input is only in the values
    found = connection.execute(query, values)
    for name, kind, environment, model, launcher, history, cursor in found:
        known = History.from_dict(json.loads(history))
        yield Row(name, kind, environment, model, launcher, known, cursor)
