"""Starts an environment's services in order, waits until each is ready, and stops them in reverse.

A leaf. A run's supervisor calls `start` for its worker group; code that plays an environment
without a supervisor uses `running`.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import ServiceFailed
from sparring.contracts.specs import Service

_HOST = "127.0.0.1"
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # for loopback requests
_LAST_LINES = 15
_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.05

LogOf = Callable[[str], Path]


@dataclass(frozen=True, slots=True)
class StartedService:
    """A service process that was started; it may not be ready yet."""

    service: Service
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self) -> str:
        """`HOST:PORT` of the service."""
        return f"{_HOST}:{self.port}"

    @property
    def is_ready(self) -> bool:
        """Whether the service meets its readiness condition now."""
        return is_ready(self.service, self.port, self.log)


@contextmanager
def running(services: Sequence[Service], log_of: LogOf, folder: Path) -> Iterator[dict[str, str]]:
    """Start all services, and yield their addresses by name once all are ready.

    The services end with the context. Where `setpriv` is installed, they also end if this process
    is killed.
    """
    setpriv = shutil.which("setpriv")
    before = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
    with contextlib.ExitStack() as stack:
        addresses: dict[str, str] = {}
        for service in services:
            started = start(service, log_of(f"service-{service.name}"), folder, before=before)
            stack.callback(_stop, started.process)
            wait_until_ready(started)
            addresses[service.name] = started.address
        yield addresses


def start(
    service: Service,
    log: Path,
    folder: Path,
    *,
    before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> StartedService:
    """Start one service in a new session, on a free port. `before` precedes its command."""
    log.parent.mkdir(parents=True, exist_ok=True)
    port = free_port()
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*before, *service.command_at(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        raise ServiceFailed(f"service {service.name} cannot be started: {error}") from error
    return StartedService(service, process, port, log)


def wait_until_ready(started: StartedService, give_up: Callable[[], bool] = lambda: False) -> None:
    """Return once the service is ready or `give_up()` is true.

    Raises ServiceFailed if the service ends first, or is not ready within `service.seconds`.
    """
    service = started.service
    deadline = time.monotonic() + service.seconds
    while not started.is_ready and not give_up():
        if started.process.poll() is not None:
            raise ServiceFailed(
                f"service {service.name} ended with exit code {started.process.returncode} before "
                f"it was ready; {_log_excerpt(started.log)}"
            )
        if time.monotonic() > deadline:
            raise ServiceFailed(
                f"service {service.name} was not ready within {service.seconds:g} s "
                f"({_condition(service, started.port)}); {_log_excerpt(started.log)}"
            )
        time.sleep(_POLL_SECONDS)


def is_ready(service: Service, port: int, log: Path) -> bool:
    """Whether a service is ready, by its `ready_line` or `ready_http`, or else its open port."""
    if service.ready_line is not None:
        return service.ready_line.replace("{port}", str(port)) in _text(log)
    if service.ready_http is not None:
        url = f"http://{_HOST}:{port}/{service.ready_http.lstrip('/')}"
        try:
            with NO_PROXY.open(url, timeout=2) as response:
                return bool(200 <= response.status < 300)
        except (OSError, http.client.HTTPException, ValueError):
            return False
    with contextlib.suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
        return True
    return False


def _condition(service: Service, port: int) -> str:
    if service.ready_line is not None:
        return f"waited for it to print {service.ready_line!r}"
    if service.ready_http is not None:
        return f"waited for a response from http://{_HOST}:{port}/{service.ready_http.lstrip('/')}"
    return f"waited for it to accept connections on {_HOST}:{port}"


def _log_excerpt(log: Path) -> str:
    lines = _text(log).splitlines()[-_LAST_LINES:]
    shown = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
    return f"the last lines of {log}:\n{shown}"


def _text(log: Path) -> str:
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 65536))
        return file.read().decode("utf-8", "replace")
    return ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the process group, then SIGKILL once its leader ends or after 5 seconds."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)


def free_port() -> int:
    """Return a loopback port that is currently free."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
