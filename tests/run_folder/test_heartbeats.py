"""The first rank's heartbeat is in the run's folder; with several hosts, the others' are local."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.run_folder.heartbeats import (
    LOCAL_HEARTBEATS,
    heartbeat_file,
    local_heartbeats,
    read_heartbeats,
)


def test_on_one_host_every_rank_writes_to_the_run_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert [heartbeat_file(folder, rank, None) for rank in (0, 3)] == [
        folder.rank_heartbeat(0),
        folder.rank_heartbeat(3),
    ]


def test_on_several_hosts_only_the_first_rank_does(tmp_path: Path) -> None:
    folder, local = RunFolder(tmp_path / "run"), tmp_path / "local"
    assert heartbeat_file(folder, 0, local) == folder.rank_heartbeat(0)
    assert heartbeat_file(folder, 3, local).parent == local


def test_the_environment_names_the_local_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCAL_HEARTBEATS, raising=False)
    assert local_heartbeats() is None
    monkeypatch.setenv(LOCAL_HEARTBEATS, "/somewhere/local")
    assert local_heartbeats() == Path("/somewhere/local")


def test_a_rank_without_a_heartbeat_has_an_empty_one(tmp_path: Path) -> None:
    folder, local = RunFolder(tmp_path / "run"), tmp_path / "local"
    write_json(heartbeat_file(folder, 1, local), {"beats": 4}, durable=False)
    assert read_heartbeats(folder, range(3), local) == {0: {}, 1: {"beats": 4}, 2: {}}
