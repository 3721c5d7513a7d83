"""The rows of the index of runs, and the database that holds them.

It is the one at `SPARRING_DATABASE_URL`, a schema in PostgreSQL, or an SQLite file. SQLite needs a
local disk. A file outside the folder of runs is in a folder that only this user can access, because
operations trust its content. Hosts that share a folder of runs can share its index through
PostgreSQL.

Both databases hold the same two tables and are written with the same statements. There are no
migrations: another version starts with empty tables, which the index fills from the folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DatabaseError, InterfaceError, OperationalError

from sparring.contracts.errors import InfrastructureError, InvalidInput, MissingPackage
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import agent_of_target, is_python_target
from sparring.run_folder import RunFolder
from sparring.run_folder.files import file_lock, read_json
from sparring.runs.history import History, HistoryRead, read_history
from sparring.runs.lifecycle import RunState
from sparring.secrets import read_key

DATABASE_URL = "SPARRING_DATABASE_URL"
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "fuse.sshfs", "9p")


def database_of(runs: Path) -> Path | str:
    """Return the path of the SQLite file, or the database URL with the schema's name as fragment.

    The URL comes from `SPARRING_DATABASE_URL` or from the file that `SPARRING_DATABASE_URL_FILE`
    names. It may contain a password.
    """
    url = read_key(DATABASE_URL)
    if url is None:
        return place_of(runs)
    return f"{url.get_secret_value()}#sparring_{_identity_of(runs)}"


def place_of(runs: Path) -> Path:
    """Return a path inside the folder of runs. If that folder is on a network file system or not
    writable, return a path in a private local folder."""
    beside = runs / ".sparring"
    is_writable = os.access(beside if beside.is_dir() else runs, os.W_OK)
    if _file_system_of(runs) not in _NETWORK and (is_writable or not runs.is_dir()):
        return runs / ".sparring" / "index.sqlite"
    name = sha256(str(runs.resolve()).encode()).hexdigest()[:16]
    return _private_folder() / f"index-{name}.sqlite"


def _identity_of(runs: Path) -> str:
    """Return a digest that identifies a folder of runs: the same on all hosts that mount it at the
    same path, and another for a copy or for a folder at that path on another disk."""
    mark = runs / ".sparring" / "index_id"
    with contextlib.suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        written = mark.with_name(f"index_id.{secrets.token_hex(8)}")
        if not mark.exists():
            written.write_text(secrets.token_hex(16))
            with contextlib.suppress(FileExistsError):
                mark.hardlink_to(written)  # only the first of several hosts succeeds
            written.unlink()
    try:
        token = mark.read_text()
    except OSError:
        token = ""  # the folder is not writable: only its path identifies it
    return sha256(f"{token}\n{runs.resolve()}".encode()).hexdigest()[:16]


def _private_folder() -> Path:
    """Return a local folder that only this user can access."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if _file_system_of(home) in _NETWORK:
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


def _file_system_of(path: Path) -> str:
    """Return the file system type of a path, as in /proc/mounts; empty if it is unknown."""
    here, kind, length = str(path.resolve()), "", -1
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, found, *_ = line.split(" ")
            is_above = here == mount or here.startswith(mount.rstrip("/") + "/")
            if is_above and len(mount) > length:
                kind, length = found, len(mount)
    return kind


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


VERSION = 3
_BUSY_SECONDS = 30
_CREATION_SECONDS = 5.0
_CONNECT_SECONDS = 10
_BATCH_ROWS = 500
_CACHED_ENGINES = 16  # an engine keeps its compiled statements, but no connection
_DRIVER = "postgresql+psycopg"

# Ids sort by code point in both databases; PostgreSQL's default collation depends on the locale.
_NAME = sql.String().with_variant(postgresql.VARCHAR(collation="C"), "postgresql")
_metadata = sql.MetaData()
RUNS = sql.Table(
    "runs",
    _metadata,
    sql.Column("id", _NAME, primary_key=True),
    sql.Column("kind", sql.String, nullable=False),
    sql.Column("environment", sql.String, nullable=False),
    sql.Column("model", sql.String, nullable=False),
    sql.Column("launcher", sql.String, nullable=False),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("queued", sql.Float, nullable=False),
    sql.Column("cursor", sql.BigInteger, nullable=False),
    sql.Column("history", sql.Text, nullable=False),
    sql.Index("newest", "created", "id"),
    sql.Index("newest_by_state", "state", "created", "id"),
    sql.Index("newest_by_environment", "environment", "created", "id"),
)
MARKS = sql.Table(
    "marks",
    _metadata,
    sql.Column("name", sql.String, primary_key=True),
    sql.Column("value", sql.BigInteger, nullable=False),
)


class Database(Protocol):
    """The database interface that `Index` uses."""

    def reading(self) -> AbstractContextManager[sql.Connection]:
        """Open a connection for reading."""

    def writing(self) -> AbstractContextManager[sql.Connection]:
        """Open a connection in a transaction that excludes other writers."""

    def insert(self, table: sql.Table) -> Any:
        """Return an INSERT statement that supports ON CONFLICT DO UPDATE."""

    def is_complete(self) -> bool:
        """Return whether both tables exist."""

    def rebuild(self) -> None:
        """Restore empty tables: SQLite replaces the file, PostgreSQL an incomplete schema."""


def open_database(place: Path | str) -> Database:
    """Open the SQLite file at a path, or the PostgreSQL schema that a URL's fragment names."""
    if isinstance(place, Path):
        return SqliteDatabase(place)
    url, _, schema = place.rpartition("#")
    return PostgresDatabase(url, schema)


def memory_database() -> Database:
    """Return an empty SQLite database in memory."""
    return SqliteDatabase(None)


def store(
    database: Database,
    rows: Sequence[Row],
    gone: set[str],
    marks: dict[str, int],
    *,
    replaces_all: bool = False,
) -> None:
    """Write `rows` and `marks` and delete the runs in `gone`, in one transaction. A row with a
    smaller cursor never replaces one of the same run with a larger cursor: readers may finish in
    any order. With `replaces_all`, all existing rows are deleted first."""
    insertion = database.insert(RUNS)
    columns = [column.name for column in RUNS.columns if column.name != "id"]
    upsert = insertion.on_conflict_do_update(
        index_elements=["id"],
        set_={name: insertion.excluded[name] for name in columns},
        where=sql.or_(
            insertion.excluded.cursor >= RUNS.c.cursor,
            insertion.excluded.created != RUNS.c.created,  # a new run with the id of a deleted one
        ),
    )
    mark = database.insert(MARKS)
    upsert_mark = mark.on_conflict_do_update(
        index_elements=["name"], set_={"value": mark.excluded.value}
    )
    with database.writing() as connection:
        if replaces_all:
            connection.execute(sql.delete(RUNS))
        for start in range(0, len(rows), _BATCH_ROWS):
            connection.execute(
                upsert, [columns_of(row) for row in rows[start : start + _BATCH_ROWS]]
            )
        names = sorted(gone)
        for start in range(0, len(names), _BATCH_ROWS):
            is_gone = RUNS.c.id.in_(names[start : start + _BATCH_ROWS])
            connection.execute(sql.delete(RUNS).where(is_gone))
        values = [{"name": name, "value": value} for name, value in marks.items()]
        connection.execute(upsert_mark, values)


class SqliteDatabase:
    """An index in an SQLite file, or in memory without a path. A damaged file and tables of another
    version are replaced."""

    insert = staticmethod(sqlite.insert)

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is None:
            self._engine = _memory_engine()
            _metadata.create_all(self._engine)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            self._delete_files()
        try:
            self._engine = self._create()
        except OperationalError:
            raise  # busy, full, read-only or not openable: deleting the file would not help
        except DatabaseError:
            self.rebuild()

    def reading(self) -> sql.Connection:
        """Open a connection for reading."""
        return self._engine.connect().execution_options(writes=False)

    def writing(self) -> AbstractContextManager[sql.Connection]:
        """Open a connection in a transaction that holds the write lock."""
        return self._engine.begin()

    def is_complete(self) -> bool:
        """Return whether both tables exist."""
        with self.reading() as connection:
            return set(_metadata.tables) <= set(sql.inspect(connection).get_table_names())

    def rebuild(self) -> None:
        """Replace the file with one that has empty tables."""
        self._delete_files()
        self._engine = self._create()

    def _create(self) -> sql.Engine:
        assert self._path is not None
        engine = _sqlite_engine(self._path)
        # Two processes cannot enter WAL mode at the same time.
        with file_lock(self._path.parent / "index.lock", _CREATION_SECONDS):
            with engine.connect().execution_options(writes=False) as connection:
                version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            if version != VERSION:
                with engine.begin() as connection:
                    _metadata.drop_all(connection)
                    _metadata.create_all(connection)
                    connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
        return engine

    def _delete_files(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            path = Path(f"{self._path}{suffix}")
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


class PostgresDatabase:
    """An index in its own PostgreSQL schema. If a table is missing, both are created again."""

    insert = staticmethod(postgresql.insert)

    def __init__(self, url: str, schema: str) -> None:
        self._schema = f"{schema}_v{VERSION}"
        self._engine = _postgres_engine(url).execution_options(
            schema_translate_map={None: self._schema}
        )
        self._shown = sql.make_url(url).render_as_string(hide_password=True)
        self.rebuild()

    @contextmanager
    def reading(self) -> Iterator[sql.Connection]:
        """Open a connection for reading."""
        with self._explained(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sql.Connection]:
        """Open a connection in a transaction that holds this schema's advisory lock."""
        with self._explained(), self._engine.begin() as connection:
            self._lock(connection)
            yield connection

    def is_complete(self) -> bool:
        """Return whether both tables exist."""
        with self.reading() as connection:
            return self._has_tables(connection)

    def rebuild(self) -> None:
        """If a table is missing, drop the schema and create both tables, empty."""
        with self.reading() as connection:
            if self._has_tables(connection):
                return
        with self.writing() as connection:
            if not self._has_tables(connection):
                connection.execute(
                    sql.schema.DropSchema(self._schema, cascade=True, if_exists=True)
                )
                connection.execute(sql.schema.CreateSchema(self._schema))
                _metadata.create_all(connection, checkfirst=False)

    def _has_tables(self, connection: sql.Connection) -> bool:
        names = [f"{self._schema}.{table}" for table in ("runs", "marks")]
        found = [connection.scalar(sql.select(sql.func.to_regclass(name))) for name in names]
        return None not in found

    def _lock(self, connection: sql.Connection) -> None:
        number = sql.func.hashtextextended(self._schema, 0)
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(number)))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OperationalError, InterfaceError) as error:
            reason = str(error.orig).strip().splitlines()[0]
            raise InfrastructureError(
                f"the index of runs in {self._shown} cannot be used: {reason}; start that "
                "database, or unset SPARRING_DATABASE_URL (and …_URL_FILE) to use SQLite"
            ) from error


@lru_cache(_CACHED_ENGINES)
def _postgres_engine(url: str) -> sql.Engine:
    try:
        parsed = sql.make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InvalidInput("SPARRING_DATABASE_URL is not a URL") from error
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise InvalidInput(
            f"SPARRING_DATABASE_URL names {parsed.get_backend_name()!r}; only postgresql:// is "
            "known, and SQLite needs no URL"
        )
    options = {"connect_timeout": _CONNECT_SECONDS, "application_name": "sparring"}
    try:
        return sql.create_engine(
            parsed.set(drivername=_DRIVER),
            connect_args=options,
            poolclass=sql.NullPool,  # a pooled connection would not survive a restart of the server
        )
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "PostgreSQL needs a package: pip install 'sparring[postgres]'"
        ) from error


def _memory_engine() -> sql.Engine:
    engine = sql.create_engine(
        "sqlite://",
        connect_args={"check_same_thread": False},
        poolclass=sql.StaticPool,  # one connection: each would have a database of its own
    )
    return engine.execution_options(writes=True)


@lru_cache(_CACHED_ENGINES)
def _sqlite_engine(path: Path) -> sql.Engine:
    engine = sql.create_engine(
        sql.URL.create("sqlite", database=str(path)),
        connect_args={"timeout": _BUSY_SECONDS, "isolation_level": None},
        poolclass=sql.NullPool,  # another process may replace the file
    )

    @sql.event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    @sql.event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        # A transaction that reads, then writes, fails if another has written in between.
        is_writing = connection.get_execution_options().get("writes", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")

    return engine.execution_options(writes=True)
