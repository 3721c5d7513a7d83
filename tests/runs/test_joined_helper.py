"""A player or server of another host: started again while the run goes on, and ended with it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparring.contracts.errors import InvalidInput
from sparring.operations.operation import Caller, Role
from sparring.operations.run_control import JoinRun, join_run
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.events import append_state
from sparring.run_folder.files import write_json
from sparring.run_folder.orders import Orders
from sparring.run_folder.server_list import JoinedServers
from sparring.runs import helpers, joined_helper
from sparring.runs.joined_helper import JoinedHelper, JoinedServer, free_number, joined_player
from sparring.runs.lifecycle import RunState
from sparring.runs.worker_group import Member
from tests.runs.test_helpers import ROOT, create
from tests.sampling_servers import COMMAND
from tests.supervised import completed, start, wait_for
from tests.training import weights_digest

ADDRESSES = {"servers": ["http://gpu1:8000"]}
SLEEP = "import time; time.sleep(60)"
LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(60)"


def replace_program(
    helper: JoinedHelper, monkeypatch: pytest.MonkeyPatch, program: str
) -> list[Member]:
    """Have the helper run this program; return the processes that it starts."""
    started: list[Member] = []
    start = helper._start

    def instead(name: str, command: Sequence[str]) -> Member:
        line = program.replace("{port}", str(command[-2]))
        started.append(start(name, [sys.executable, "-c", line]))
        return started[-1]

    monkeypatch.setattr(helper._helpers, "start_process", instead)
    return started


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(joined_helper, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(helpers, "_PROBE_SECONDS", 0.05)
    monkeypatch.setenv("SPARRING_HOST", "127.0.0.1")
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1, "kind": "train"})
    append_state(made, RunState.QUEUED, author="test")
    return made


def test_a_player_that_is_killed_is_started_again_and_ends_with_the_run(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    player, codes = joined_player(folder, 2), []
    started = replace_program(player, monkeypatch, SLEEP)
    thread = threading.Thread(target=lambda: codes.append(player.run()))
    thread.start()
    for number in range(1, 6):
        wait_for(lambda number=number: len(started) == number, 30)
        if number < 5:
            Orders(folder.orders).beat("player-2", number)
            started[-1].identity.signal(9)
    append_state(folder, RunState.STOPPED, author="test")
    thread.join(30)
    assert codes == [0]
    assert not started[-1].identity.is_alive


def test_a_server_is_known_while_its_host_lives(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, codes = JoinedServer(folder, 0), []
    started = replace_program(server, monkeypatch, LISTEN)
    thread = threading.Thread(target=lambda: codes.append(server.run()))
    thread.start()
    wait_for(lambda: JoinedServers(folder).addresses(), 30)
    (address,) = JoinedServers(folder).addresses()
    assert address.startswith("http://127.0.0.1:")
    for number in range(1, 4):  # more often than a server that never works may end
        wait_for(lambda: server._helper.has_worked, 30)
        started[-1].identity.signal(9)
        wait_for(lambda number=number: len(started) == number + 1, 30)
    assert JoinedServers(folder).addresses() == (address,)
    append_state(folder, RunState.STOPPED, author="test")
    thread.join(30)
    assert codes == [0]
    assert JoinedServers(folder).addresses() == ()
    assert not started[-1].identity.is_alive


@pytest.mark.parametrize("make", [joined_player, JoinedServer])
def test_a_process_that_never_works_is_given_up(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    helper = make(folder, 2)
    started = replace_program(helper, monkeypatch, "raise SystemExit(1)")
    assert helper.run() == 1
    assert len(started) == 3


def test_a_deleted_run_ends_its_helpers(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    player = joined_player(folder, 2)
    started = replace_program(player, monkeypatch, SLEEP)
    folder.spec.unlink()
    assert player.run() == 0
    assert started == []


def test_every_helper_that_joins_gets_a_number_of_its_own(folder: RunFolder) -> None:
    write_spec(folder, {"players": 2, "sampling": {"servers": "joined"}})
    assert [free_number(folder, "player") for _ in range(3)] == [2, 3, 4]
    assert [free_number(folder, "server") for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("role", "settings", "reason"),
    [
        ("player", {"players": 0, "sampling": ADDRESSES}, "--set players=1"),
        ("player", {"players": 2, "sampling": {"servers": 2}}, "--sampling joined"),
        ("server", {"sampling": {"servers": 2}}, "--sampling joined"),
        ("server", {"sampling": None}, "--sampling joined"),
    ],
)
def test_a_run_without_use_for_a_helper_says_what_it_needs(
    folder: RunFolder, role: str, settings: dict[str, Any], reason: str
) -> None:
    write_spec(folder, settings)
    with pytest.raises(InvalidInput, match=reason):
        free_number(folder, role)


def test_no_player_joins_a_run_whose_services_it_cannot_reach(folder: RunFolder) -> None:
    write_spec(
        folder,
        {"players": 2, "sampling": {"servers": "joined"}},
        services=[{"name": "db", "command": ["db"]}],
    )
    with pytest.raises(InvalidInput, match=r"services of run .* answer on its own host only"):
        free_number(folder, "player")


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_servers_that_join_late_and_are_killed_sample_like_one_of_the_run(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("SPARRING_HOST", "127.0.0.1")
    own = {"servers": 1, "command": COMMAND}
    alone = completed(start(create(tmp_path, "alone", tiny_folder, own)), 200)
    joined = {"servers": "joined", "command": COMMAND}
    folder = start(create(tmp_path, "joined", tiny_folder, joined))
    owner = Caller(Role.OWNER, tmp_path, folder=tmp_path)
    servers = JoinedServers(folder)
    for _ in range(2):
        join_run(JoinRun(run="joined", role="server"), owner)
    wait_for(lambda: list_checkpoints(folder.checkpoints), 200)
    server_at(servers.addresses()[0]).kill()
    completed(folder, 200)
    assert weights_digest(folder) == weights_digest(alone)
    wait_for(lambda: JoinedServers(folder).addresses() == (), 30)


def server_at(address: str) -> psutil.Process:
    port = address.rpartition(":")[2]
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "tests.sampling_server" in (line := process.cmdline()) and port in line:
                return process
    raise AssertionError(f"no server at {address}")


SPEC = {"format": 1, "kind": "train", "target": "x.py:X"}


def write_spec(folder: RunFolder, settings: dict[str, Any], **more: Any) -> None:
    write_json(
        folder.spec,
        {**SPEC, "settings": settings, **more},
    )
