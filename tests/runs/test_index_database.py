"""The index in PostgreSQL holds what the folders hold, whoever writes, and heals."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sparring.contracts.errors import InfrastructureError, InvalidInput
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.runs.index import Index, Query
from sparring.runs.index_database import (
    DATABASE_URL,
    VERSION,
    columns_of,
    database_of,
    open_database,
    place_of,
    read_row,
    row_of,
)
from sparring.runs.lifecycle import RunState
from tests.runs.index_writers import make, rows_of, write_from_here
from tests.runs.network import Network


class Machine:
    """A machine whose mounts are told here, by folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mounts: dict[str, str] = {"/": "ext4"}
        self.root = root
        monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / "runtime"))
        read = Path.read_text

        def read_text(path: Path, *given: Any, **options: Any) -> str:
            if str(path) == "/proc/mounts":
                lines = (f"dev {at} {kind} rw 0 0" for at, kind in self.mounts.items())
                return "\n".join(lines)
            return read(path, *given, **options)

        monkeypatch.setattr(Path, "read_text", read_text)

    def mount(self, name: str, kind: str) -> Path:
        self.mounts[str(self.root / name)] = kind
        return self.root / name


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path.resolve(), monkeypatch)


def test_on_a_local_disk_the_index_lies_beside_the_runs(machine: Machine) -> None:
    runs = machine.root / "runs"
    assert place_of(runs) == runs / ".sparring" / "index.sqlite"


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs"])
def test_on_a_network_it_lies_in_a_folder_of_this_user_alone(machine: Machine, kind: str) -> None:
    runs = machine.mount("shared", kind) / "team" / "runs"
    place = place_of(runs)
    assert place.is_relative_to(machine.root / "cache")
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert place == place_of(runs)
    assert place != place_of(runs.parent / "other")


def test_the_innermost_mount_counts(machine: Machine) -> None:
    machine.mount("shared", "nfs")
    inside = machine.mount("shared/scratch", "xfs") / "runs"
    assert place_of(inside) == inside / ".sparring" / "index.sqlite"
    beside = machine.root / "shared-not" / "runs"  # its name begins alike
    assert place_of(beside) == beside / ".sparring" / "index.sqlite"


def test_a_home_on_the_network_is_passed_over(machine: Machine) -> None:
    machine.mount("cache", "nfs")
    place = place_of(machine.mount("shared", "nfs") / "runs")
    assert place.is_relative_to(machine.root / "runtime")


def test_a_folder_that_others_can_open_is_refused(machine: Machine) -> None:
    runs = machine.mount("shared", "nfs") / "runs"
    folder = place_of(runs).parent
    folder.chmod(0o755)
    with pytest.raises(InvalidInput, match="open to other users; remove it, or set XDG_CACHE_HOME"):
        place_of(runs)


def test_a_link_in_its_place_is_refused(machine: Machine) -> None:
    runs = machine.mount("shared", "nfs") / "runs"
    folder = place_of(runs).parent
    folder.rename(machine.root / "elsewhere")
    folder.symlink_to(machine.root / "elsewhere")
    with pytest.raises(InvalidInput, match="open to other users"):
        place_of(runs)


def test_runs_that_may_not_be_written_have_their_index_elsewhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = machine.root / "runs"
    runs.mkdir()
    monkeypatch.setattr("os.access", lambda *_: False)
    assert machine.root / "cache" in place_of(runs).parents
    monkeypatch.undo()
    assert place_of(runs) == runs / ".sparring" / "index.sqlite"


def test_a_row_survives_being_stored(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a-1")
    folder.create({"format": 1, "kind": "train", "policy": {"model": "tiny"}, "target": "x.py:X"})
    append_state(folder, RunState.QUEUED, author="test")
    row = read_row(folder)
    assert row is not None
    assert (row.kind, row.environment, row.model, row.launcher) == ("train", "x", "tiny", "local")
    assert row_of(SimpleNamespace(**columns_of(row))) == row


def test_a_known_row_reads_only_what_is_new(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a-1")
    folder.create({"format": 1, "kind": "train"})
    append_state(folder, RunState.QUEUED, author="test")
    first = read_row(folder)
    append_state(folder, RunState.STOPPED, author="test")
    folder.spec.unlink()  # a known row does not read it again
    later = read_row(folder, first)
    assert later is not None
    assert later.state is RunState.STOPPED


def test_the_model_is_the_one_in_the_spec_or_else_the_one_that_the_run_opened(
    tmp_path: Path,
) -> None:
    for model, shown in (("tiny", "tiny"), (None, "smollm2")):
        folder = RunFolder(tmp_path / shown)
        folder.create({"format": 1, "kind": "train", "policy": {"model": model}})
        append_state(folder, RunState.QUEUED, author="test")
        first = read_row(folder)
        append_event(folder, "inputs", author="worker", model="smollm2", suite="digest")
        append_event(folder, "inputs", author="worker", suite="digest")
        later = read_row(folder, first)
        assert later is not None
        assert later.model == shown
        assert row_of(SimpleNamespace(**columns_of(later))) == later


def test_a_folder_that_is_no_run_has_no_row(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("[]")
    assert read_row(RunFolder(tmp_path)) is None


if TYPE_CHECKING:
    from tests.runs.postgres import Postgres

SECRET = "hunter2"


def fresh(runs: Path, tmp_path: Path) -> list[object]:
    """What an index in a new file makes of the folders."""
    index = Index(runs, tmp_path / "fresh" / os.urandom(4).hex() / "index.sqlite")
    index.reindex()
    return list(index.all())


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\U0010ffff"])
def test_any_text_of_a_spec_can_be_indexed(tmp_path: Path, text: str) -> None:
    make(tmp_path / "runs", "a-1", environment=text)
    index = Index(tmp_path / "runs")
    (row,) = index.page(Query())
    assert index.page(Query(environment=row.environment)) == [row]
    assert index.page(Query(environment=text)) == [row]
    assert index.named(f"a{text}") == []


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    url = f"postgresql://ada:{SECRET}@127.0.0.1:1/runs#sparring_x"
    with pytest.raises(InfrastructureError, match="unset SPARRING_DATABASE_URL") as raised:
        open_database(url)
    assert "ada" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_the_index_of_a_folder_with_a_question_mark_is_in_that_folder(tmp_path: Path) -> None:
    place = tmp_path / "what?" / "index.sqlite"
    open_database(place)
    assert place.is_file()
    assert [each.name for each in tmp_path.iterdir()] == ["what?"]


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://ada:{SECRET}@host/x",
        f"nonsense {SECRET}",
        f"postgresql://ada:{SECRET}@host:port/x",
        "",
    ],
)
def test_only_postgresql_is_known(url: str) -> None:
    with pytest.raises(InvalidInput, match="SPARRING_DATABASE_URL") as raised:
        open_database(f"{url}#sparring_x")
    assert SECRET not in str(raised.value)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    pytest.importorskip("psycopg")
    from tests.runs.postgres import Postgres, bin_folder

    if (programs := bin_folder()) is None:
        pytest.skip("needs PostgreSQL: make postgres")
    made = Postgres(tmp_path_factory.mktemp("postgres"), programs)
    yield made
    if made.is_up():
        made.stop()


@pytest.fixture
def runs(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATABASE_URL, postgres.url)
    place = tmp_path / "runs"
    place.mkdir()
    return place


@pytest.mark.nightly
def test_pages_names_and_filters_are_those_of_a_file(runs: Path, tmp_path: Path) -> None:
    names = ["b-1", "a-1", "B-2", "a_1", "a-10", "z.1", "a-2"]
    for number, name in enumerate(names):
        folder = make(runs, name, environment="odd" if number % 2 else "even")
        if number % 3 == 0:
            append_state(folder, RunState.STOPPED, author="test")
    index, file = Index(runs), Index(runs, tmp_path / "index.sqlite")
    for query in (
        Query(),
        Query(count=2),
        Query(after="B-2"),
        Query(states=(RunState.STOPPED,)),
        Query(environment="odd", kind="train"),
        Query(kind="eval"),
    ):
        assert index.page(query) == file.page(query)
    for beginning in ("a-", "a", "B", "b", "nothing", "%", "_"):
        assert index.named(beginning, 9) == file.named(beginning, 9)
    assert index.active() == file.active()
    assert list(index.all()) == list(file.all())


@pytest.mark.nightly
def test_fifty_writers_of_two_processes_lose_nothing(runs: Path, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    halves = [list(range(25)), list(range(25, 50))]
    hosts = [spawn.Process(target=write_from_here, args=(runs, half, 4)) for half in halves]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join()
        assert host.exitcode == 0
    index = Index(runs)
    index.refresh()
    rows = list(index.all())
    assert len(rows) == 200
    assert {row.state for row in rows} == {RunState.FAILED}
    assert rows == fresh(runs, tmp_path)


@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces take root")
def test_fifty_writers_on_two_hosts_lose_nothing_though_the_database_is_killed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The hosts share the folder of the runs, and reach the database over their network."""
    pytest.importorskip("psycopg")
    from tests.runs.postgres import Postgres, bin_folder

    if (programs := bin_folder()) is None:
        pytest.skip("needs PostgreSQL: make postgres")
    runs, files = tmp_path / "runs", [tmp_path / "one.json", tmp_path / "two.json"]
    runs.mkdir()
    with Network() as network:
        place = tmp_path_factory.mktemp("postgres")
        database = Postgres(place, programs, network.address(0), network.inside(0))
        variables = {DATABASE_URL: database.url}

        def on_both(count: int) -> list[list[str]]:
            ends = [("0", "25"), ("25", "50")]
            hosts = [
                network.start(
                    number,
                    "tests.runs.index_writers",
                    *(str(runs), *ends[number], str(count), str(files[number])),
                    variables=variables,
                )
                for number in range(2)
            ]
            assert [host.wait(240) for host in hosts] == [0, 0]
            return [json.loads(file.read_text()) for file in files]

        on_both(4)
        database.kill()
        database.create()  # empty: both hosts index the folder again, at the same time
        one, two = on_both(0)
        database.stop()
    expected = Index(runs, tmp_path / "index.sqlite")
    expected.reindex()
    assert len(one) == 200
    assert one == two == rows_of(expected)


@pytest.mark.nightly
def test_a_copy_of_a_folder_has_an_index_of_its_own(runs: Path, tmp_path: Path) -> None:
    import shutil

    make(runs, "a-1")
    assert len(Index(runs).page(Query())) == 1
    copied = tmp_path / "copied"
    shutil.copytree(runs, copied)
    make(copied, "b-1")
    assert len(Index(copied).page(Query())) == 2
    assert len(Index(runs).page(Query())) == 1
    assert database_of(copied) != database_of(runs) == database_of(runs)


@pytest.mark.nightly
@pytest.mark.parametrize("damage", ["killed", "killed and lost", "dropped", "emptied", "changed"])
def test_a_database_that_was_lost_or_damaged_heals(
    runs: Path, tmp_path: Path, postgres: Postgres, damage: str
) -> None:
    for number in range(5):
        make(runs, f"a-{number}")
    index = Index(runs)
    assert len(index.page(Query())) == 5
    schema = str(database_of(runs)).rpartition("#")[2] + f"_v{VERSION}"
    assert schema in postgres.schemas()
    if damage.startswith("killed"):
        postgres.kill()
        with pytest.raises(InfrastructureError, match="start that database"):
            index.page(Query())
        make(runs, "a-5")  # runs are written while it is away
        postgres.start() if damage == "killed" else postgres.create()
    elif damage == "dropped":
        postgres.execute(f"drop schema {schema} cascade")
    elif damage == "emptied":
        postgres.execute(f"delete from {schema}.runs; delete from {schema}.marks")
    else:
        postgres.execute(f"delete from {schema}.runs where id < 'a-3'")
        assert Index(runs).reindex() == 5
    count = 6 if damage.startswith("killed") else 5
    assert len(index.page(Query())) == count  # also by an index that was open all the time
    assert list(index.all()) == fresh(runs, tmp_path)
