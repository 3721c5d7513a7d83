"""Sampling servers of a run: fixed addresses, and those of hosts that come and go."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from sparring.contracts.training import SamplingServers
from sparring.run_folder import RunFolder, server_list
from sparring.run_folder.files import write_json
from sparring.run_folder.server_list import JoinedServers, server_addresses

ADDRESSES = ("http://a:1", "http://b:2")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(server_list.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def test_given_addresses_need_no_key(folder: RunFolder) -> None:
    found = server_addresses(folder, SamplingServers(servers=ADDRESSES))
    assert (found.read(), found.key) == (ADDRESSES, None)


def test_servers_that_the_run_started_are_read_from_its_folder(folder: RunFolder) -> None:
    write_json(folder.sampling, {"format": 1, "addresses": list(ADDRESSES)})
    assert server_addresses(folder, SamplingServers(servers=2)).read() == ADDRESSES


def test_servers_may_join_and_leave_while_the_run_samples(
    folder: RunFolder, clock: list[float]
) -> None:
    found = server_addresses(folder, SamplingServers(servers="joined"))
    assert found.read() == ()
    joined = JoinedServers(folder)
    for number, address in enumerate(ADDRESSES):
        joined.beat(number, address, 1)
    clock[0] += 1
    assert found.read() == ADDRESSES
    joined.remove(0)
    assert found.read() == ADDRESSES  # read once a second
    clock[0] += 1
    assert found.read() == ADDRESSES[1:]


def test_a_server_whose_host_is_silent_for_a_minute_is_left_out_until_it_is_back(
    folder: RunFolder, clock: list[float]
) -> None:
    joined = JoinedServers(folder)
    seen = []
    for beats in range(1, 4):
        joined.beat(0, ADDRESSES[0], beats)
        seen.append(joined.addresses())
        clock[0] += 50
    clock[0] += 20
    assert seen == [ADDRESSES[:1]] * 3
    assert joined.addresses() == ()
    joined.beat(0, ADDRESSES[0], 4)
    clock[0] += 1
    assert joined.addresses() == ADDRESSES[:1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"address": 3}', '{"beats": 1}'])
def test_a_spoilt_file_is_no_server(folder: RunFolder, text: str) -> None:
    folder.servers.mkdir(parents=True)
    (folder.servers / "server-0.json").write_text(text)
    assert JoinedServers(folder).addresses() == ()


def test_all_processes_of_a_run_read_the_same_key_and_others_cannot(folder: RunFolder) -> None:
    keys: list[str] = []
    threads = [
        threading.Thread(target=lambda: keys.append(JoinedServers(folder).key())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
    assert len(keys[0]) >= 40
    place = folder.servers / "key"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert [each.name for each in folder.servers.iterdir()] == ["key"]
