"""A host reports all its ranks in one file; the supervisor reads it once a second."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.run_folder import RunFolder
from sparring.run_folder.events import LOCAL_HEARTBEATS
from sparring.run_folder.files import write_json
from sparring.runs import hosts
from sparring.runs.hosts import Hosts
from sparring.runs.worker_group import Placement, WorkerGroup

ROOT = Path(__file__).resolve().parents[2]


class Group(WorkerGroup):
    """Starts a process that beats once where its environment says, instead of a rank."""

    def _start_process(self, name, command, environment):
        write_beat = (
            "import os, pathlib, time; "
            f"folder = os.environ.get('{LOCAL_HEARTBEATS}'); "
            f"pathlib.Path(folder or '.', '{name}.json').write_text('{{\"beats\": 7}}'); "
            "print('beaten', flush=True); time.sleep(60)"
        )
        return super()._start_process(name, [sys.executable, "-c", write_beat], environment)


def started(folder: RunFolder, **placement: int) -> Group:
    group = Group(folder, Placement(attempt=1, **placement))
    group.start_ranks(accept_changes=False)
    for rank in group.ranks:
        while not rank.log.read_text():
            assert rank.exited is None
    return group


def test_the_ranks_of_a_further_host_beat_into_a_local_folder_that_ends_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LOCAL_HEARTBEATS, raising=False)
    folder = RunFolder(tmp_path / "run")
    group = started(folder, nodes=2, node=1, processes=2)
    local = Path(str(group.to_dict()["local_heartbeats"]))
    try:
        assert group.heartbeats() == {2: {"beats": 7}, 3: {"beats": 7}}
        assert not (folder.path / "heartbeats").exists()
        adopted = Group(folder, Placement(attempt=1, nodes=2, node=1, processes=2))
        assert adopted.adopt(group.to_dict(), [])
        assert adopted.heartbeats() == group.heartbeats()
        assert local.stat().st_mode & 0o077 == 0
    finally:
        group.end()
    assert not local.exists()


def test_reports_are_read_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run")

    def report(beats: int) -> None:
        content = {"attempt": 1, "beats": beats, "heartbeats": {"1": {"beats": beats}}}
        write_json(folder.host(1), content, durable=False)

    report(1)
    found = Hosts(folder, 1, 2)
    assert found.heartbeats() == {1: {"beats": 1}}
    report(2)
    assert found.heartbeats() == {1: {"beats": 1}}
    monkeypatch.setattr(hosts, "_LOOK_SECONDS", 0.0)
    assert found.heartbeats() == {1: {"beats": 2}}
    assert not found.ranks_are_done


def test_hosts_that_join_at_the_same_time_get_numbers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_RESERVED_SECONDS", 0.01)
    folder = RunFolder(tmp_path / "run")
    with ThreadPoolExecutor(3) as pool:
        numbers = list(pool.map(lambda _: hosts.free_host_number(folder, 4), range(3)))
    assert sorted(numbers) == [1, 2, 3]


def test_a_host_that_waits_for_the_run_keeps_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "train"})
    waiting = hosts.JoinedHost(folder, 1)
    monkeypatch.setattr(hosts.time, "sleep", lambda _: waiting._beat())
    waiting._beat()
    with pytest.raises(InvalidInput, match="all 2 hosts"):
        hosts.free_host_number(folder, 2)
    assert not Hosts(folder, 1, 2).heartbeats()


def test_a_host_leaves_a_run_that_was_deleted_and_makes_no_folder_for_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "train"})
    joined = hosts.JoinedHost(folder, 1)
    assert not joined._is_over()
    shutil.rmtree(folder.path)
    assert joined.run() == 0
    assert not folder.path.exists()


def test_a_beat_that_cannot_be_written_ends_no_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "train"})

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "the file server is away")

    monkeypatch.setattr(hosts, "write_json", fail)
    hosts.JoinedHost(folder, 1)._beat()


def test_a_rank_of_another_host_that_ran_out_of_memory_is_named_so(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    lost = {"name": "rank 1", "code": -9, "log": str(tmp_path / "log"), "was_out_of_memory": True}
    write_json(folder.host(1), {"attempt": 1, "beats": 1, "lost": lost}, durable=False)
    cause = Hosts(folder, 1, 2).lost(60)
    assert cause is not None
    assert cause.kind == "out_of_memory"


@pytest.mark.nightly
def test_heartbeats_cost_a_few_calls_a_second_and_host() -> None:
    command = [sys.executable, "benchmarks/hosts.py", "--hosts", "5", "--seconds", "4"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["ranks"] == 40
    assert result["calls_per_second_and_host"] <= 10
    assert (result["exit_code"], result["restarts"]) == (103, [])
