"""Several hosts of one run, which meet in its folder: each starts its own ranks as told there.

The run's supervisor says in `gang.json` which attempt is on and where its processes meet; each
further host says in a file of its own how its processes are. Nothing else passes between them,
so a host can be lost, or come back, at any time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, read_told, write_json
from sparring.runs.causes import Cause, Gone, of_an_end
from sparring.runs.gang import Gang, Placement
from sparring.runs.history import Read, read_history
from sparring.runs.processes import Identity, identity_of

SILENT_SECONDS = 20.0
_LOOK_SECONDS = 0.2


class Hosts:
    """The other hosts of an attempt, as the run's supervisor sees them."""

    def __init__(self, folder: RunFolder, attempt: int, nodes: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self._numbers = range(1, nodes)
        self._beats: dict[int, tuple[Any, float]] = {}
        self._since = time.monotonic()

    def lost(self, start_seconds: float) -> Cause | None:
        """A host that has lost a process, or that is silent itself."""
        now = time.monotonic()
        for number in self._numbers:
            told = self._told(number)
            if not told and number not in self._beats:
                if now - self._since > start_seconds:
                    message = f"host {number} has not joined within {start_seconds:g} s"
                    return Cause("host_lost", message, is_retried=False)
                continue
            if (bad := told.get("lost")) is not None:
                gone = Gone(f"{bad['name']} on host {number}", bad["code"], Path(bad["log"]))
                return of_an_end(gone, "", self._folder.path, was_out_of_memory=False)
            beat, since = self._beats.get(number, (None, now))
            if told and told.get("beats") != beat:
                self._beats[number] = (told.get("beats"), now)
            elif now - since > SILENT_SECONDS:
                message = f"host {number} has been silent for {SILENT_SECONDS:g} s"
                return Cause("host_lost", message)
        return None

    def wait_until_ended(self, seconds: float, tick: Callable[[], object]) -> None:
        """Until they have ended their processes; one that is lost cannot say so."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            tick()
            told = [self._told(number) for number in self._numbers]
            if all(each.get("has_ended") for each in told if each):
                return
            time.sleep(_LOOK_SECONDS)

    @property
    def ranks_are_done(self) -> bool:
        return all(self._told(number).get("is_done") for number in self._numbers)

    def _told(self, number: int) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            told = read_json(self._folder.host(number))
            if told.get("attempt") == self._attempt:
                return told
        return {}


# ---------------------------------------------------------------------- on a further host


class JoinedHost:
    """Starts and ends this host's ranks as the run's supervisor wants them, until the run ends."""

    def __init__(self, folder: RunFolder, number: int) -> None:
        self._folder = folder
        self._number = number
        self._gang: Gang | None = None
        self._beats = 0
        self._read = Read()

    def run(self) -> int:
        try:
            while not self._is_over():
                self._follow(read_told(self._folder.gang))
                self._beat()
                time.sleep(_LOOK_SECONDS)
        finally:
            self._end()
            self._beat()
        return 0

    def _is_over(self) -> bool:
        self._read = read_history(self._folder, self._read)
        return self._read.history.state.has_ended

    def _follow(self, wanted: Mapping[str, Any]) -> None:
        attempt = wanted.get("attempt")
        current = self._gang.placement.attempt if self._gang else None
        if self._gang and (attempt != current or wanted.get("is_over")):
            self._end()
            current = None
        if current is None and attempt is not None and not wanted.get("is_over"):
            placement = Placement(
                attempt=int(attempt),
                processes=int(wanted["processes"]),
                nodes=int(wanted["nodes"]),
                node=self._number,
                address=str(wanted["address"]),
                port=int(wanted["port"]),
            )
            mine = f"host-{self._number}"
            self._gang = Gang(self._folder, placement, own_mark=mine, is_bound=True)
            self._gang.start_ranks(accept_changes=bool(wanted.get("accept_changes")))

    def _end(self) -> None:
        if self._gang is not None:
            self._gang.end()

    def _beat(self) -> None:
        if self._gang is None:
            return
        self._beats += 1
        lost = self._gang.lost()
        told = {
            "format": 1,
            "beats": f"{os.getpid()}-{self._beats}",
            "is_done": self._gang.is_done,
            "has_ended": self._gang.is_done,
            "lost": lost and {"name": lost.name, "code": lost.code, "log": str(lost.log)},
            **identity_of(os.getpid()).to_dict(),
            **self._gang.to_dict(),
        }
        write_json(self._folder.host(self._number), told, durable=False)


def free_number(folder: RunFolder, nodes: int) -> int:
    """Which of the further hosts this one can be: one that nobody is."""
    before = {number: _beats(folder, number) for number in range(1, nodes)}
    for number, beats in before.items():
        if beats is None or _is_dead_here(folder, number):
            return number
    time.sleep(5 * _LOOK_SECONDS)
    for number, beats in before.items():
        if _beats(folder, number) == beats:
            return number
    raise InvalidInput(f"all {nodes} hosts of run {folder.id} are there already")


def _beats(folder: RunFolder, number: int) -> Any:
    with contextlib.suppress(OSError, ValueError):
        return read_json(folder.host(number)).get("beats")
    return None


def _is_dead_here(folder: RunFolder, number: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        identity = Identity.from_dict(read_json(folder.host(number)))
        return identity is not None and identity.is_of_this_host and not identity.is_alive
    return False


if __name__ == "__main__":
    sys.exit(JoinedHost(RunFolder(Path(sys.argv[1])), int(sys.argv[2])).run())
