"""Coordinates the hosts of a run through the run's folder.

The supervisor writes the current attempt and its rendezvous address to `workers.json`. Each further
host starts its ranks accordingly, and writes their states and heartbeats to one report file. A host
can be lost or rejoin at any time. Both sides read the folder once a second, independently of the
number of ranks, because the folder is on a file server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import Beat, JsonObject
from sparring.run_folder import RunFolder
from sparring.run_folder.files import file_lock, read_json, read_json_or_empty, write_json
from sparring.runs.causes import Cause, ExitedProcess, cause_of_exit, memory_kills
from sparring.runs.history import HistoryRead, read_history
from sparring.runs.processes import ProcessIdentity, identity_of
from sparring.runs.worker_group import Placement, WorkerGroup

SILENT_SECONDS = 20.0
_LOOK_SECONDS = 1.0
_POLL_SECONDS = 0.2
_LOCK_SECONDS = 10.0
_RESERVED_SECONDS = 10.0  # a process that has reserved a number starts to report within it


class Hosts:
    """Reads the reports of an attempt's further hosts, for the run's supervisor."""

    def __init__(self, folder: RunFolder, attempt: int, nodes: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self._numbers = range(1, nodes)
        self._reports: dict[int, Beat] = {}
        self._looked_at = float("-inf")
        self._beats: dict[int, tuple[Any, float]] = {}
        self._since = time.monotonic()

    def lost(self, start_timeout: float) -> Cause | None:
        """Return a cause if a host has lost a process, has been silent for 20 s, or has not joined
        within `start_timeout`."""
        self._look_if_due()
        now = time.monotonic()
        for number in self._numbers:
            report = self._reports[number]
            if not report and number not in self._beats:
                if now - self._since > start_timeout:
                    message = f"host {number} has not joined within {start_timeout:g} s"
                    return Cause("host_lost", message, is_retried=False)
                continue
            if (lost := report.get("lost")) is not None:
                name = f"{lost['name']} on host {number}"
                exited = ExitedProcess(name, lost["code"], Path(lost["log"]))
                return cause_of_exit(
                    exited,
                    "",
                    self._folder.path,
                    was_out_of_memory=bool(lost.get("was_out_of_memory")),
                )
            beat, since = self._beats.get(number, (None, now))
            if report and report.get("beats") != beat:
                self._beats[number] = (report.get("beats"), now)
            elif now - since > SILENT_SECONDS:
                message = f"host {number} has been silent for {SILENT_SECONDS:g} s"
                return Cause("host_lost", message)
        return None

    def wait_until_ended(self, seconds: float, tick: Callable[[], object]) -> None:
        """Wait up to `seconds` until all hosts with a report have ended their ranks; calls `tick`
        at each poll."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            tick()
            self._look()
            if all(report.get("has_ended") for report in self._reports.values() if report):
                return
            time.sleep(_POLL_SECONDS)

    @property
    def ranks_are_done(self) -> bool:
        """Whether the ranks of all further hosts have ended."""
        self._look_if_due()
        return all(report.get("is_done") for report in self._reports.values())

    def heartbeats(self) -> dict[int, Beat]:
        """Return the last heartbeat of each rank on the further hosts, by rank."""
        self._look_if_due()
        return {
            int(rank): heartbeat
            for report in self._reports.values()
            for rank, heartbeat in report.get("heartbeats", {}).items()
        }

    def _look_if_due(self) -> None:
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._look()

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        self._reports = {number: self._report(number) for number in self._numbers}

    def _report(self, number: int) -> JsonObject:
        with contextlib.suppress(OSError, ValueError):
            report = read_json(self._folder.host(number))
            if report.get("attempt") == self._attempt:
                return report
        return {}


# ---------------------------------------------------------------------- on a further host


class JoinedHost:
    """Starts and ends this host's ranks according to `workers.json`, until the run ends."""

    def __init__(self, folder: RunFolder, number: int) -> None:
        self._folder = folder
        self._number = number
        self._workers: WorkerGroup | None = None
        self._beats = 0
        self._kills_before = 0
        self._read = HistoryRead()

    def run(self) -> int:
        """Follow `workers.json` until the run ends, then end the ranks; returns exit code 0."""
        try:
            while not self._is_over():
                self._follow(read_json_or_empty(self._folder.workers))
                self._beat()
                self._wait()
        finally:
            self._end()
            self._beat()
        return 0

    def _is_over(self) -> bool:
        """Whether the run has ended or was deleted. A file server that does not answer is asked
        again."""
        try:
            self._read = read_history(self._folder, self._read)
            return self._read.history.state.has_ended or not self._folder.spec.exists()
        except OSError:
            return False

    def _follow(self, plan: JsonObject) -> None:
        attempt = plan.get("attempt")
        current = self._workers.placement.attempt if self._workers else None
        if self._workers and (attempt != current or plan.get("is_over")):
            self._end()
            current = None
        if current is None and attempt is not None and not plan.get("is_over"):
            placement = Placement.from_dict(plan, node=self._number)
            mark = f"host-{self._number}"
            self._kills_before = memory_kills()
            self._workers = WorkerGroup(self._folder, placement, own_mark=mark, is_bound=True)
            self._workers.start_ranks(accept_changes=bool(plan.get("accept_changes")))

    def _wait(self) -> None:
        """Wait a second, or until a rank of this host ends."""
        if self._workers is None:
            time.sleep(_LOOK_SECONDS)
        else:
            self._workers.wait(_LOOK_SECONDS)

    def _end(self) -> None:
        if self._workers is not None:
            self._workers.end()

    def _beat(self) -> None:
        self._beats += 1
        report = {
            "format": 1,
            "beats": f"{os.getpid()}-{self._beats}",
            **identity_of(os.getpid()).to_dict(),
        }
        if self._workers is not None:
            report |= {
                "is_done": self._workers.is_done,
                "has_ended": self._workers.is_done,
                "lost": self._lost(self._workers),
                **self._workers.to_dict(),
                "heartbeats": self._workers.heartbeats(),
            }
        with contextlib.suppress(OSError):  # the next beat writes again
            if self._folder.spec.exists():
                write_json(self._folder.host(self._number), report, durable=False)

    def _lost(self, workers: WorkerGroup) -> JsonObject | None:
        lost = workers.lost()
        if lost is None:
            return None
        return {
            "name": lost.name,
            "code": lost.code,
            "log": str(lost.log),
            "was_out_of_memory": memory_kills() > self._kills_before,
        }


def free_host_number(folder: RunFolder, nodes: int) -> int:
    """Reserve and return the number of a further host that has not joined, or whose process is dead
    or silent. Raises InvalidInput if there is none."""
    before = {number: _beats(folder, number) for number in range(1, nodes)}
    for number, beats in before.items():
        is_free = beats is None or _is_dead_here(folder, number)
        if is_free and _reserve(folder, number, beats):
            return number
    time.sleep(_RESERVED_SECONDS)
    for number in before:
        beats = _beats(folder, number)
        if beats == before[number] and _reserve(folder, number, beats):
            return number
    raise InvalidInput(f"all {nodes} hosts of run {folder.id} have already joined")


def _reserve(folder: RunFolder, number: int, beats: Any) -> bool:
    """Write a first report for a host unless another process has written one since `beats`."""
    file = folder.host(number)
    with file_lock(file.with_suffix(".lock"), _LOCK_SECONDS):
        if _beats(folder, number) != beats:
            return False
        report = {"format": 1, "beats": f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"}
        write_json(file, report, durable=False)
    return True


def _beats(folder: RunFolder, number: int) -> Any:
    with contextlib.suppress(OSError, ValueError):
        return read_json(folder.host(number)).get("beats")
    return None


def _is_dead_here(folder: RunFolder, number: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        identity = ProcessIdentity.from_dict(read_json(folder.host(number)))
        return identity is not None and identity.is_of_this_host and not identity.is_alive
    return False


if __name__ == "__main__":
    sys.exit(JoinedHost(RunFolder(Path(sys.argv[1])), int(sys.argv[2])).run())
