"""A player process on another host than the run's supervisor, until the run ends.

It plays what the ranks order through the run's folder, and samples from servers that were given by
address. It may join and be lost at any time: its orders are then offered to the other players.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.run_folder import RunFolder
from sparring.run_folder.orders import Orders
from sparring.runs.helpers import MAX_ENDS, content_of
from sparring.runs.history import HistoryRead, read_history

_LOOK_SECONDS = 1.0


class JoinedPlayer:
    """Starts a player process, again when it ends, and ends it with the run."""

    def __init__(self, folder: RunFolder, number: int) -> None:
        self._folder = folder
        self._number = number
        self._read = HistoryRead()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Play until the run ends. Return 1 if the player keeps ending before it has worked."""
        ends, heartbeat = 0, Orders(self._folder.orders).heartbeat(f"player-{self._number}")
        try:
            while not self._is_over():
                before = content_of(heartbeat)
                process = self._start()
                while process.poll() is None and not self._is_over():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_LOOK_SECONDS)
                if process.poll() is not None:
                    ends = ends + 1 if content_of(heartbeat) == before else 1
                    if ends >= MAX_ENDS:
                        return 1
                    time.sleep(_LOOK_SECONDS)
        finally:
            self._end()
        return 0

    def _start(self) -> subprocess.Popen[bytes]:
        setpriv = shutil.which("setpriv")  # the kernel ends the player with this process
        prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        path = str(self._folder.path.resolve())
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "sparring.jobs.player", path, str(self._number)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self._process

    def _is_over(self) -> bool:
        if not self._folder.spec.exists():  # the run was deleted
            return True
        self._read = read_history(self._folder, self._read)
        return self._read.history.state.has_ended

    def _end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def free_player_number(folder: RunFolder, spec: dict[str, Any]) -> int:
    """Reserve the number of a further player. Raise InvalidInput if the run has no use for one."""
    settings = spec.get("settings") or {}
    players, sampling = int(settings.get("players") or 0), settings.get("sampling") or {}
    if players == 0:
        raise InvalidInput(
            f"the ranks of run {folder.id} play themselves; start it with --set players=1 or more"
        )
    if isinstance(sampling.get("servers"), int):
        raise InvalidInput(
            f"the sampling servers of run {folder.id} answer on its own host only; start it with "
            "--sampling ADDRESS,… of servers that this host can reach"
        )
    reserved = folder.orders / "joined"
    reserved.mkdir(parents=True, exist_ok=True)
    number = players
    while True:
        try:
            (reserved / f"player-{number}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number


if __name__ == "__main__":
    sys.exit(JoinedPlayer(RunFolder(Path(sys.argv[1])), int(sys.argv[2])).run())
