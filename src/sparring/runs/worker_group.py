"""Starts, adopts and ends the processes of one attempt on this host: services, helpers, ranks.

Each process has its own session and log, and carries the run's mark in its environment. Unless they
are bound (`is_bound`), a new supervisor adopts the live processes of its predecessor, so that the
death of a supervisor loses no work.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.json import Beat, JsonObject
from sparring.contracts.specs import RunSpec, Service
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec
from sparring.run_folder.events import LOCAL_HEARTBEATS, read_heartbeats
from sparring.run_folder.files import write_json
from sparring.run_folder.orders import Orders
from sparring.runs.causes import ExitedProcess
from sparring.runs.helpers import PREFIXES, Helper, Helpers
from sparring.runs.processes import MARK, ProcessIdentity, end_all, identity_of, start_detached
from sparring.services import free_port, is_ready, start, wait_until_ready

_LOOPBACK = "127.0.0.1"
_MEMORY_FOLDER = "/dev/shm"  # noqa: S108  # mkdtemp makes a private folder there
_GRACE_SECONDS = 3.0
_GOOD_CODES = (0, 103, None)  # completed, stopped, unknown


@dataclass(frozen=True, slots=True)
class Placement:
    """Which ranks of a run this host starts, and the rendezvous address of all ranks."""

    attempt: int
    processes: int = 1
    nodes: int = 1
    node: int = 0
    address: str = _LOOPBACK
    port: int = 0

    @classmethod
    def from_dict(cls, attempt: JsonObject, node: int = 0) -> Placement:
        """Return a host's placement in the attempt that `workers.json` describes."""
        return cls(
            attempt=int(attempt["attempt"]),
            processes=int(attempt.get("processes", 1)),
            nodes=int(attempt.get("nodes", 1)),
            node=node,
            address=str(attempt.get("address", "")),
            port=int(attempt.get("port", 0)),
        )

    @property
    def world_size(self) -> int:
        """The number of ranks on all hosts."""
        return self.processes * self.nodes

    @property
    def ranks(self) -> range:
        """The ranks that this host starts."""
        return range(self.node * self.processes, (self.node + 1) * self.processes)

    def environment_of(self, local: int) -> dict[str, str]:
        """Return the environment variables of one rank; if there are several, also torchrun's.
        Ranks that share a host get one OpenMP thread each, unless OMP_NUM_THREADS is set."""
        variables = {"SPARRING_ATTEMPT": str(self.attempt)}
        if self.world_size == 1:
            return variables
        variables |= {
            "RANK": str(self.node * self.processes + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.processes),
            "GROUP_RANK": str(self.node),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }
        if self.processes > 1 and "OMP_NUM_THREADS" not in os.environ:
            variables["OMP_NUM_THREADS"] = "1"
        return variables


class Member:
    """One process, started by this supervisor or by a previous one."""

    def __init__(
        self,
        name: str,
        identity: ProcessIdentity,
        log: Path,
        process: subprocess.Popen[bytes] | None,
    ) -> None:
        self.name = name
        self.identity = identity
        self.log = log
        self._process = process
        self.pidfd = _pidfd_of(identity)

    @property
    def exited(self) -> ExitedProcess | None:
        """The process as an `ExitedProcess`; None while it runs."""
        if self._process is not None:
            code = self._process.poll()
            return None if code is None else ExitedProcess(self.name, code, self.log)
        return None if self.identity.is_alive else ExitedProcess(self.name, None, self.log)

    def to_dict(self) -> JsonObject:
        """Return the row of this process in the supervisor's heartbeat, as `adopt` reads it."""
        exited = self.exited
        state = "running" if exited is None else exited.describe().removeprefix(f"{self.name} ")
        row = {"name": self.name, "state": state, "log": str(self.log)}
        return {**row, **self.identity.to_dict()}

    def close(self) -> None:
        """Reap the process and release its descriptor."""
        if self._process is not None:
            self._process.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class WorkerGroup:
    """The services, helpers and ranks of one attempt on this host."""

    def __init__(
        self, folder: RunFolder, placement: Placement, *, own_mark: str = "", is_bound: bool = False
    ) -> None:
        """With `is_bound`, the kernel kills the processes when this process ends, if `setpriv` is
        installed. It is for hosts on which no successor can adopt them."""
        self.folder = folder
        self.placement = placement
        self.mark = mark_of(folder, own_mark)
        setpriv = shutil.which("setpriv") if is_bound else None
        self._before = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        self.services: list[Member] = []
        self.helpers = Helpers(self._start_helper)
        self.ranks: list[Member] = []
        self._probes: dict[str, tuple[Service, int, Path]] = {}
        self._ports: dict[str, int] = {}
        self._server_ports: list[int] = []
        self._players = 0
        self._local_heartbeats: Path | None = None  # only with several hosts

    @property
    def members(self) -> list[Member]:
        """All processes: services, helpers, ranks."""
        return [*self.services, *self.helpers.members, *self.ranks]

    # ------------------------------------------------------------------ starting

    def start_services(
        self, services: Sequence[Service], give_up: Callable[[], bool], on_start: Callable[[], None]
    ) -> None:
        """Start the services one by one, each once the previous one is ready, and write their
        addresses for the ranks. Calls `on_start` after each start. Returns early, without writing,
        once `give_up()` is true."""
        attempt = self.placement.attempt
        target = read_run_spec(self.folder).target
        source = Path(target.rpartition(":")[0] or ".").resolve()
        for service in services:
            name = f"service-{service.name}"
            log = self.folder.log(attempt, name)
            started = start(
                service,
                log,
                source.parent,
                before=self._before,
                environment=self._environment(),
            )
            self.services.append(
                Member(name, identity_of(started.process.pid), log, started.process)
            )
            self._ports[service.name] = started.port
            on_start()  # before the wait, so that a successor can adopt the service
            wait_until_ready(started, give_up)
            if give_up():
                return
            self._note_probe(service, started.port)
        addresses = {name: f"{_LOOPBACK}:{port}" for name, port in self._ports.items()}
        write_json(self.folder.services, {"format": 1, "attempt": attempt, "addresses": addresses})

    def start_helpers(self, spec: RunSpec) -> None:
        """Write the addresses of the run's sampling servers; start the servers and the players.
        Only a training has any."""
        settings = spec.settings if isinstance(spec, TrainSpec) else TrainSettings()
        started = settings.sampling.number_started if settings.sampling else 0
        self._server_ports = [free_port() for _ in range(started)]
        self._players = settings.players
        if self._server_ports:
            addresses = [f"http://{_LOOPBACK}:{port}" for port in self._server_ports]
            write_json(self.folder.sampling, {"format": 1, "addresses": addresses})
        self.helpers.start(self._helpers())

    def _helpers(self) -> list[Helper]:
        """Return the sampling servers and players of this host, without starting them."""
        path = str(self.folder.path.resolve())
        module = [sys.executable, "-m", "sparring.jobs.sampling_server", path]
        servers = [
            Helper(f"server-{number}", [*module, str(number), str(port)], port)
            for number, port in enumerate(self._server_ports)
        ]
        module = [sys.executable, "-m", "sparring.jobs.player", path]
        players = [
            Helper(
                f"player-{number}",
                [*module, str(number)],
                heartbeat=Orders(self.folder.orders).heartbeat(f"player-{number}"),
            )
            for number in range(self._players)
        ]
        return [*servers, *players]

    def _start_helper(self, name: str, command: Sequence[str]) -> Member:
        return self._start_process(name, command, self._environment())

    def start_ranks(self, *, accept_changes: bool) -> None:
        """Start this host's ranks."""
        path = str(self.folder.path.resolve())
        command = [sys.executable, "-m", "sparring.jobs", path]
        command += ["--accept-changes"] if accept_changes else []
        variables = {}
        if self.placement.nodes > 1:
            parent = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK) else None
            self._local_heartbeats = Path(tempfile.mkdtemp(prefix="sparring-", dir=parent))
            variables[LOCAL_HEARTBEATS] = str(self._local_heartbeats)
        for local, rank in enumerate(self.placement.ranks):
            name = "worker" if self.placement.world_size == 1 else f"rank-{rank}"
            environment = self._environment(self.placement.environment_of(local) | variables)
            self.ranks.append(self._start_process(name, command, environment))

    def _start_process(
        self, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> Member:
        log = self.folder.log(self.placement.attempt, name)
        log.parent.mkdir(parents=True, exist_ok=True)
        process = start_detached([*self._before, *command], log, environment)
        return Member(name, identity_of(process.pid), log, process)

    def _environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, MARK: self.mark, **(extra or {})}

    # ------------------------------------------------------------------ taking over

    def adopt(self, report: JsonObject, services: Sequence[Service]) -> bool:
        """Adopt the processes in a previous supervisor's heartbeat, and restart ended helpers.
        Return False if a rank or service is not alive; some processes are then not adopted."""
        members, helpers = [], {}
        for row in report.get("processes", ()):
            identity, name = ProcessIdentity.from_dict(row), str(row["name"])
            is_helper = name.startswith(PREFIXES)
            if identity is None or not identity.is_alive:
                if is_helper:
                    continue
                return False
            member = Member(name, identity, Path(row["log"]), None)
            if is_helper:
                helpers[name] = member
            else:
                members.append(member)
        self.services = [member for member in members if member.name.startswith("service-")]
        self.ranks = [member for member in members if member not in self.services]
        self._server_ports = [int(port) for port in report.get("server_ports", ())]
        self._players = int(report.get("players", 0))
        if local := report.get("local_heartbeats"):
            self._local_heartbeats = Path(local)
        self.helpers.adopt(self._helpers(), helpers)
        ports = dict(report.get("ports", {}))
        self._ports = {name: int(port) for name, port in ports.items()}
        for service in services:
            if (port := self._ports.get(service.name)) is not None:
                self._note_probe(service, port)
        has_all_ranks = len(self.ranks) == self.placement.processes
        return has_all_ranks and len(self.services) == len(services)

    def _note_probe(self, service: Service, port: int) -> None:
        """Let `silent_service` probe this service, unless it has a `ready_line`, which cannot be
        probed."""
        if service.ready_line is None:
            log = self.folder.log(self.placement.attempt, f"service-{service.name}")
            self._probes[f"service-{service.name}"] = (service, port, log)

    def to_dict(self) -> JsonObject:
        """Return the part of the supervisor's heartbeat that `adopt` reads."""
        return {
            "attempt": self.placement.attempt,
            "processes": [member.to_dict() for member in self.members],
            "ports": self._ports,
            "server_ports": self._server_ports,
            "players": self._players,
            "local_heartbeats": self._local_heartbeats and str(self._local_heartbeats),
        }

    # ------------------------------------------------------------------ monitoring

    def heartbeats(self) -> dict[int, Beat]:
        """Return the last heartbeat of each rank of this host, by rank."""
        return read_heartbeats(self.folder, self.placement.ranks, self._local_heartbeats)

    def wait(self, seconds: float) -> None:
        """Wait until one of the processes ends, for up to `seconds`."""
        poll = select.poll()
        for member in self.members:
            if member.pidfd is not None and member.exited is None:
                poll.register(member.pidfd, select.POLLIN)
        poll.poll(seconds * 1000)

    def lost(self) -> ExitedProcess | None:
        """Return the first process that ended unexpectedly: a helper that ended too often without
        working, any service, or a rank whose exit code is neither 0 nor 103 (stopped). The unknown
        exit code of an adopted rank is accepted."""
        if self.helpers.lost is not None:
            return self.helpers.lost
        for service in self.services:
            if service.exited is not None:
                return service.exited
        for rank in self.ranks:
            if (exited := rank.exited) is not None and exited.code not in _GOOD_CODES:
                return exited
        return None

    @property
    def is_done(self) -> bool:
        """Whether all ranks of this host have ended."""
        return all(rank.exited is not None for rank in self.ranks)

    def silent_service(self) -> str:
        """Return the name of a service that does not answer, or an empty string."""
        for name, (service, port, log) in self._probes.items():
            if not is_ready(service, port, log):
                return name
        return ""

    # ------------------------------------------------------------------ ending

    def request_stop(self) -> None:
        """Send SIGTERM to the ranks."""
        for rank in self.ranks:
            rank.identity.signal(signal.SIGTERM)

    def dump_stacks(self) -> None:
        """Make every rank dump its stacks into its log (SIGUSR1), and wait half a second."""
        for rank in self.ranks:
            rank.identity.signal(signal.SIGUSR1)
        time.sleep(0.5)

    def _roots(self, members: Sequence[Member]) -> list[int]:
        """Return the session ids of these processes, which equal their pids, except pids that now
        belong to other processes. The kernel reuses no pid while its session has a process."""
        return [each.identity.pid for each in members if not each.identity.is_pid_reused]

    def end(self) -> list[str]:
        """Kill the ranks with all their descendants, terminate the services in reverse order, then
        kill all other processes. Return the pids of processes that did not end."""
        # No process carries this mark, so only the ranks' sessions and descendants are killed here;
        # the run's own mark would also match the services.
        end_all(f"{self.mark} but for services", self._roots(self.ranks))
        for service in reversed(self.services):
            service.identity.signal(signal.SIGTERM)
            deadline = time.monotonic() + _GRACE_SECONDS
            while service.exited is None and time.monotonic() < deadline:
                time.sleep(0.02)
        remaining = end_all(self.mark, self._roots(self.members))
        if not remaining:
            for member in self.members:
                member.close()
            if self._local_heartbeats is not None:
                shutil.rmtree(self._local_heartbeats, ignore_errors=True)
        return remaining


def mark_of(folder: RunFolder, host: str = "") -> str:
    """Return the mark that a run's processes carry in their environment. Each further host has its
    own mark and ends only its own processes, because two hosts of a run may be one machine."""
    return f"{folder.path.resolve()}{f'#{host}' if host else ''}"


def _pidfd_of(identity: ProcessIdentity) -> int | None:
    try:
        return os.pidfd_open(identity.pid)
    except (AttributeError, OSError):
        return None
