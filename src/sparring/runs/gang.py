"""The processes of one attempt at a run, on this host: services first, then the ranks.

Each has a session, a log and a mark of its own. A supervisor that replaces another takes over
processes that still live: no work is lost with the one who watched it.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.services import Service
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.runs.causes import Gone
from sparring.runs.processes import MARK, Identity, end_all, identity_of
from sparring.services import is_ready, start, wait_until_ready

_LOOPBACK = "127.0.0.1"
_GRACE_SECONDS = 3.0
_WELL = (0, 103, None)  # done, stopped, or not known


@dataclass(frozen=True, slots=True)
class Placement:
    """What of a run this host does, and where all of its processes meet."""

    attempt: int
    processes: int = 1
    nodes: int = 1
    node: int = 0
    address: str = _LOOPBACK
    port: int = 0

    @property
    def world_size(self) -> int:
        return self.processes * self.nodes

    def environment_of(self, local: int) -> dict[str, str]:
        """What torch wants to know of one rank among all. Ranks that share a host have one thread
        each, or they would fight for its cores."""
        told = {"SPARRING_ATTEMPT": str(self.attempt)}
        if self.world_size == 1:
            return told
        told |= {
            "RANK": str(self.node * self.processes + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.processes),
            "GROUP_RANK": str(self.node),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }
        if self.processes > 1 and "OMP_NUM_THREADS" not in os.environ:
            told["OMP_NUM_THREADS"] = "1"
        return told


class Member:
    """One process: started by us, or by a supervisor before us."""

    def __init__(
        self, name: str, identity: Identity, log: Path, process: subprocess.Popen[bytes] | None
    ) -> None:
        self.name = name
        self.identity = identity
        self.log = log
        self._process = process
        self.pidfd = _pidfd_of(identity)

    @property
    def is_ours(self) -> bool:
        return self._process is not None

    @property
    def gone(self) -> Gone | None:
        """How it ended; None while it lives."""
        if self._process is not None:
            code = self._process.poll()
            return None if code is None else Gone(self.name, code, self.log)
        return None if self.identity.is_alive else Gone(self.name, None, self.log)

    def to_dict(self) -> dict[str, Any]:
        gone = self.gone
        state = "running" if gone is None else gone.in_words().removeprefix(f"{self.name} ")
        told = {"name": self.name, "state": state, "log": str(self.log)}
        return {**told, **self.identity.to_dict()}

    def close(self) -> None:
        if self._process is not None:
            self._process.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class Gang:
    """All processes of this host that belong to one attempt."""

    def __init__(
        self, folder: RunFolder, placement: Placement, *, own_mark: str = "", is_bound: bool = False
    ) -> None:
        """`is_bound`: its processes end with this one. Where nobody could take them over, they
        would else be left to themselves."""
        self.folder = folder
        self.placement = placement
        self.mark = mark_of(folder, own_mark)
        setpriv = shutil.which("setpriv") if is_bound else None
        self._before = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        self.services: list[Member] = []
        self.ranks: list[Member] = []
        self._probes: dict[str, tuple[Service, int, Path]] = {}
        self._ports: dict[str, int] = {}

    @property
    def members(self) -> list[Member]:
        return [*self.services, *self.ranks]

    # ------------------------------------------------------------------ starting

    def start_services(
        self, services: Sequence[Service], give_up: Callable[[], bool], told: Callable[[], None]
    ) -> None:
        """In order, each ready before the next; then the ranks can be told where they are."""
        attempt = self.placement.attempt
        place = Path(str(self.folder.read_spec()["target"]).rpartition(":")[0] or ".").resolve()
        for service in services:
            name = f"service-{service.name}"
            log = self.folder.log(attempt, name)
            started = start(
                service,
                log,
                place.parent,
                before=self._before,
                environment=self._environment(),
            )
            self.services.append(
                Member(name, identity_of(started.process.pid), log, started.process)
            )
            self._ports[service.name] = started.port
            told()  # before it is waited for: whoever comes after us must know of it
            wait_until_ready(started, give_up)
            if give_up():
                return
            self._note_probe(service, started.port)
        addresses = {name: f"{_LOOPBACK}:{port}" for name, port in self._ports.items()}
        write_json(self.folder.services, {"format": 1, "attempt": attempt, "addresses": addresses})

    def start_ranks(self, *, accept_changes: bool) -> None:
        path = str(self.folder.path.resolve())
        command = [*self._before, sys.executable, "-m", "sparring.worker", path]
        command += ["--accept-changes"] if accept_changes else []
        for local in range(self.placement.processes):
            rank = self.placement.node * self.placement.processes + local
            name = "worker" if self.placement.world_size == 1 else f"rank-{rank}"
            log = self.folder.log(self.placement.attempt, name)
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environment(self.placement.environment_of(local)),
                    start_new_session=True,
                )
            self.ranks.append(Member(name, identity_of(process.pid), log, process))

    def _environment(self, besides: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, MARK: self.mark, **(besides or {})}

    # ------------------------------------------------------------------ taking over

    def adopt(self, told: Mapping[str, Any], services: Sequence[Service]) -> bool:
        """Take over what a predecessor started, if every process of it still lives."""
        members = []
        for each in told.get("processes", ()):
            identity = Identity.from_dict(each)
            if identity is None or not identity.is_alive:
                return False
            members.append(Member(str(each["name"]), identity, Path(each["log"]), None))
        self.services = [each for each in members if each.name.startswith("service-")]
        self.ranks = [each for each in members if each not in self.services]
        ports = dict(told.get("ports", {}))
        self._ports = {name: int(port) for name, port in ports.items()}
        for service in services:
            if (port := self._ports.get(service.name)) is not None:
                self._note_probe(service, port)
        is_whole = len(self.ranks) == self.placement.processes
        return is_whole and len(self.services) == len(services)

    def _note_probe(self, service: Service, port: int) -> None:
        """What is ready when it prints a line has said all it will say."""
        if service.ready_line is None:
            log = self.folder.log(self.placement.attempt, f"service-{service.name}")
            self._probes[f"service-{service.name}"] = (service, port, log)

    def to_dict(self) -> dict[str, Any]:
        return {
            "attempt": self.placement.attempt,
            "processes": [each.to_dict() for each in self.members],
            "ports": self._ports,
        }

    # ------------------------------------------------------------------ watching

    def wait(self, seconds: float) -> None:
        """Until one of them ends, at the latest for so long."""
        poll = select.poll()
        for each in self.members:
            if each.pidfd is not None and each.gone is None:
                poll.register(each.pidfd, select.POLLIN)
        poll.poll(seconds * 1000)

    def lost(self) -> Gone | None:
        """The first that ended when it should not have: a service, or a rank that did not end
        well. Whether a rank ended well is told by its code, or by nobody."""
        for each in self.services:
            if each.gone is not None:
                return each.gone
        for each in self.ranks:
            if (gone := each.gone) is not None and gone.code not in _WELL:
                return gone
        return None

    @property
    def is_done(self) -> bool:
        """Whether all ranks have ended."""
        return all(each.gone is not None for each in self.ranks)

    def silent_service(self) -> str:
        """A service that does not answer now."""
        for name, (service, port, log) in self._probes.items():
            if not is_ready(service, port, log):
                return name
        return ""

    # ------------------------------------------------------------------ ending

    def ask_to_stop(self) -> None:
        for each in self.ranks:
            each.identity.signal(signal.SIGTERM)

    def dump_stacks(self) -> None:
        """Have every rank write into its log where it is."""
        for each in self.ranks:
            each.identity.signal(signal.SIGUSR1)
        time.sleep(0.5)

    def _roots(self, members: Sequence[Member]) -> list[int]:
        """Sessions that these lead. Of those that others started, only living ones: the number of
        a dead one may be somebody else's by now."""
        return [each.identity.pid for each in members if each.is_ours or not each.gone]

    def end(self) -> list[str]:
        """The ranks with all they started; the services in reverse, which are asked first; then
        whatever is left of them."""
        end_all(f"{self.mark} but for services", self._roots(self.ranks))
        for each in reversed(self.services):
            each.identity.signal(signal.SIGTERM)
            deadline = time.monotonic() + _GRACE_SECONDS
            while each.gone is None and time.monotonic() < deadline:
                time.sleep(0.02)
        stubborn = end_all(self.mark, self._roots(self.members))
        if not stubborn:
            for each in self.members:
                each.close()
        return stubborn


def mark_of(folder: RunFolder, host: str = "") -> str:
    """What the processes of a run have in their environment; those of a further host, which may
    be this machine too, have one of their own."""
    return f"{folder.path.resolve()}{f'#{host}' if host else ''}"


def _pidfd_of(identity: Identity) -> int | None:
    try:
        return os.pidfd_open(identity.pid)
    except (AttributeError, OSError):
        return None
