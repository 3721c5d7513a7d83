"""A player of another host: started again while the run goes on, and ended with it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.run_folder.orders import Orders
from sparring.runs import joined_player
from sparring.runs.joined_player import JoinedPlayer, free_player_number
from sparring.runs.lifecycle import RunState
from tests.supervised import wait_for

ADDRESSES = {"servers": ["http://gpu1:8000"]}


class Player(JoinedPlayer):
    """Runs a program in the place of the player's."""

    program = "import time; time.sleep(60)"

    def __init__(self, folder: RunFolder, number: int) -> None:
        super().__init__(folder, number)
        self.started: list[subprocess.Popen[bytes]] = []

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", self.program]
        self._process = subprocess.Popen(command, start_new_session=True)
        self.started.append(self._process)
        return self._process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(joined_player, "_LOOK_SECONDS", 0.05)
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1, "kind": "train"})
    append_state(made, RunState.QUEUED, author="test")
    return made


def test_a_player_that_is_killed_is_started_again_and_ends_with_the_run(folder: RunFolder) -> None:
    player, codes = Player(folder, 2), []
    thread = threading.Thread(target=lambda: codes.append(player.run()))
    thread.start()
    for number in range(1, 6):
        wait_for(lambda number=number: len(player.started) == number, 30)
        if number < 5:
            Orders(folder.orders).beat("player-2", number)
            player.started[-1].kill()
    append_state(folder, RunState.STOPPED, author="test")
    thread.join(30)
    assert codes == [0]
    assert player.started[-1].poll() is not None


def test_a_player_that_never_works_is_given_up(folder: RunFolder) -> None:
    player = Player(folder, 2)
    player.program = "raise SystemExit(1)"
    assert player.run() == 1
    assert len(player.started) == 3


def test_a_deleted_run_ends_its_players(folder: RunFolder) -> None:
    folder.spec.unlink()
    assert Player(folder, 2).run() == 0


def test_every_joined_player_gets_a_number_of_its_own(folder: RunFolder) -> None:
    spec = {"settings": {"players": 2, "sampling": ADDRESSES}}
    assert [free_player_number(folder, spec) for _ in range(3)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"players": 0, "sampling": ADDRESSES}, "--set players=1"),
        ({"players": 2, "sampling": {"servers": 2}}, "--sampling ADDRESS"),
    ],
)
def test_a_run_without_use_for_a_player_says_what_it_needs(
    folder: RunFolder, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        free_player_number(folder, {"settings": settings})
