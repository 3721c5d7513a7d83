"""Runs a player or a sampling server on another host than the supervisor's, until the run ends.

A player takes orders from the run's folder; a server writes its address to it. Both may join and be
lost at any time: the orders of a lost player are offered to other players, and the requests to a
lost server go to other servers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.contracts.training import TrainSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec
from sparring.run_folder.orders import Orders
from sparring.run_folder.server_list import JoinedServers
from sparring.runs.helpers import Helper, Helpers
from sparring.runs.history import HistoryRead, read_history
from sparring.runs.processes import end_all, identity_of
from sparring.runs.worker_group import Member
from sparring.services import free_port

_LOOK_SECONDS = 1.0


class JoinedHelper:
    """Starts one process for a run, restarts it when it ends, and kills it when the run ends."""

    def __init__(self, folder: RunFolder, helper: Helper) -> None:
        self._folder = folder
        self._helpers = Helpers(self._start)
        self._helper = helper
        self._read = HistoryRead()

    def run(self) -> int:
        """Keep the process running until the run ends. Return 0, or 1 if the process ends too
        often before it has worked."""
        try:
            if not self._is_over():
                self._helpers.start([self._helper])
            while not self._is_over():
                self._beat()
                for message in self._helpers.look():
                    print(message, flush=True)
                if self._helpers.lost is not None:
                    return 1
                time.sleep(_LOOK_SECONDS)
        finally:
            self._end()
        return 0

    def _beat(self) -> None:
        """Write this host's heartbeat. Does nothing for a player, which writes its own."""

    def _start(self, name: str, command: Sequence[str]) -> Member:
        setpriv = shutil.which("setpriv")  # the kernel kills the process if this one ends
        prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        process = subprocess.Popen(
            [*prefix, *command], stdin=subprocess.DEVNULL, start_new_session=True
        )
        return Member(name, identity_of(process.pid), self._log(name), process)

    def _log(self, name: str) -> Path:
        """Return the file that this process and its child print to. Slurm names it by task."""
        with contextlib.suppress(OSError):
            printed_to = Path("/proc/self/fd/1").readlink()
            if printed_to.suffix == ".log" and printed_to.is_file():
                return printed_to
        return self._folder.path / "logs" / f"{name}.log"

    def _is_over(self) -> bool:
        if not self._folder.spec.exists():  # the run was deleted
            return True
        self._read = read_history(self._folder, self._read)
        return self._read.history.state.has_ended

    def _end(self) -> None:
        roots = [member.identity.pid for member in self._helpers.members]
        end_all(f"{self._folder.path} joined", roots)  # no process has this mark
        for member in self._helpers.members:
            member.close()


class JoinedServer(JoinedHelper):
    """A sampling server on this host. Other hosts reach it as `SPARRING_HOST`, by default the host
    name."""

    def __init__(self, folder: RunFolder, number: int) -> None:
        self._number, self._beats = number, 0
        self._servers = JoinedServers(folder)
        host, port = os.environ.get("SPARRING_HOST") or socket.gethostname(), free_port()
        self._address = f"http://{host}:{port}"
        path = str(folder.path.resolve())
        module = [sys.executable, "-m", "sparring.jobs.sampling_server", path]
        command = [*module, str(number), str(port), host]
        super().__init__(folder, Helper(f"server-{number}", command, port, host=host))

    def _beat(self) -> None:
        self._beats += 1
        with contextlib.suppress(OSError):  # the next beat writes again
            self._servers.beat(self._number, self._address, self._beats)

    def _end(self) -> None:
        self._servers.remove(self._number)
        super()._end()


def joined_player(folder: RunFolder, number: int) -> JoinedHelper:
    """Return the helper of a player on this host, not yet started."""
    name = f"player-{number}"
    command = [sys.executable, "-m", "sparring.jobs.player", str(folder.path.resolve())]
    heartbeat = Orders(folder.orders).heartbeat(name)
    return JoinedHelper(folder, Helper(name, [*command, str(number)], heartbeat=heartbeat))


def free_number(folder: RunFolder, role: str) -> int:
    """Reserve the next free number for a joined player or server. Raise InvalidInput if the run's
    settings do not allow one."""
    spec = read_run_spec(folder)
    if not isinstance(spec, TrainSpec):  # only a training has separate players and servers
        spec = TrainSpec(target=spec.target)
    return _free_server(folder, spec) if role == "server" else _free_player(folder, spec)


def _free_player(folder: RunFolder, spec: TrainSpec) -> int:
    settings = spec.settings
    if settings.players == 0:
        raise InvalidInput(
            f"run {folder.id} has no separate players: its ranks play; start it with "
            "--sampling joined --set players=1"
        )
    if settings.sampling is not None and settings.sampling.number_started:
        raise InvalidInput(
            f"the sampling servers of run {folder.id} answer on its own host only; start it with "
            "--sampling joined, or with --sampling ADDRESS,… of servers that this host can reach"
        )
    if spec.services:
        raise InvalidInput(
            f"the services of run {folder.id} answer on its own host only, so no player can join; "
            "start the services yourself, at addresses that all hosts can reach"
        )
    return _reserve(folder.orders / "joined", "player", settings.players)


def _free_server(folder: RunFolder, spec: TrainSpec) -> int:
    sampling = spec.settings.sampling
    if sampling is None or sampling.servers != "joined":
        raise InvalidInput(
            f"run {folder.id} does not sample with servers of other hosts; start it with "
            "--sampling joined"
        )
    return _reserve(folder.servers / "joined", "server", 0)


def _reserve(place: Path, name: str, first: int) -> int:
    place.mkdir(parents=True, exist_ok=True)
    number = first
    while True:
        try:
            (place / f"{name}-{number}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number


def main(path: str, role: str, number: str = "") -> int:
    """Run a player or server for a run, with the given number or the next free one. Return the
    exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # `run` ends the child and its entry
    folder = RunFolder(Path(path))
    make = JoinedServer if role == "server" else joined_player
    return make(folder, int(number) if number else free_number(folder, role)).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
