"""Agents that are commands in a sandbox with access to the gateway's socket but no network."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sparring.contracts.errors import InfrastructureError, InvalidInput
from sparring.gateway import forwarder
from sparring.gateway.processes import check_exit, command_line, in_thread
from sparring.gateway.server import GatewayServer
from sparring.gateway.sessions import Session, case_text
from sparring.sandbox import Sandbox, SandboxLimits
from sparring.sandbox import command as sandbox_command
from sparring.sandbox.command import INSIDE, Visible
from sparring.threads import DaemonThreads

CASE_FILE, ANSWER_FILE = ".sparring/case.json", ".sparring/answer.txt"
_AGENT_FOLDER = "/agent"
_PORT = 8791
_SOCKET, _FORWARDER = "/sparring/gateway.sock", "/sparring/forwarder.py"
_MOST_THREADS = 65_536
_MIB = 1024 * 1024
AGENT_LIMITS = SandboxLimits(
    memory_bytes=4096 * _MIB,
    processes=256,
    disk_bytes=512 * _MIB,
    file_bytes=128 * _MIB,
    scratch_bytes=128 * _MIB,
    output_bytes=4 * _MIB,
    open_files=1024,
    files=65_536,
)


@dataclass(frozen=True, slots=True)
class SandboxedCommand:
    """A command and the `files` of its folder that are visible in the sandbox, read-only in /agent.
    Arguments that name one of the files are replaced by its path in /agent."""

    command: Sequence[str]
    folder: Path
    files: Sequence[str] = ()
    python: Path | None = None

    def __post_init__(self) -> None:
        for name in self.files:
            if not (self.folder / name).exists():
                raise InvalidInput(f"command_files: there is no {self.folder / name}")

    def arguments(self, *, is_confined: bool = True) -> list[str]:
        """Return the command line with the files' paths in the sandbox, or on the host."""
        folder = _AGENT_FOLDER if is_confined else self.folder
        places = {name: f"{folder}/{name}" for name in self.files}
        line = command_line(self.command, self._resolved_python())
        return [places.get(each, each) for each in line]

    def visible(self, unix_socket: Path) -> list[Visible]:
        """Return the host files that are visible besides the workspace and the system's."""
        shown = [
            Visible(unix_socket, _SOCKET),
            Visible(Path(forwarder.__file__), _FORWARDER),
            *(Visible(self.folder / name, f"{_AGENT_FOLDER}/{name}") for name in self.files),
        ]
        if (python := self._resolved_python()) is not None:
            shown.append(Visible(python, str(python)))
        return shown

    def _resolved_python(self) -> Path | None:
        return self.python.resolve() if self.python is not None else None


class SandboxedProgram:
    """Runs a command in the sandbox of the rollout's world, or else in a new sandbox.

    The command reads its case from a file of the workspace, and may write its answer to another.
    `is_unsandboxed` runs it in a workspace without containment.
    """

    def __init__(
        self,
        command: SandboxedCommand,
        *,
        limits: SandboxLimits | None = None,
        is_unsandboxed: bool = False,
    ) -> None:
        self._command = command
        self._limits = limits or AGENT_LIMITS
        self._is_unsandboxed = is_unsandboxed
        self._threads = DaemonThreads(_MOST_THREADS)
        self._folder = Path(tempfile.mkdtemp(prefix="sparring-gateway-"))
        self._folder.chmod(0o711)
        self.unix_socket = self._folder / "gateway.sock"
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def make_server(self) -> GatewayServer:
        """Start a server that listens on a loopback port and on the Unix socket."""
        return GatewayServer(unix_socket=self.unix_socket)

    async def run(self, session: Session) -> str | None:
        """Run the command and return its answer; None if it wrote none."""
        given = getattr(session.world, "sandbox", None)
        sandbox = given if isinstance(given, Sandbox) else None
        own = None
        if sandbox is None:
            sandbox = own = await in_thread(
                self._threads,
                lambda: Sandbox(self._limits, is_unsandboxed=self._is_unsandboxed),
            )
        try:
            return await self._run_in(sandbox, session)
        finally:
            if own is not None:
                await asyncio.shield(in_thread(self._threads, own.close))

    async def _run_in(self, sandbox: Sandbox, session: Session) -> str | None:
        sandbox.write(CASE_FILE, case_text(session.case).encode())
        limits = _limits_in(sandbox.limits)
        is_confined = sandbox.is_confined
        arguments = self._command.arguments(is_confined=is_confined)
        line = (
            [sandbox_command.python(), _FORWARDER, _SOCKET, str(_PORT), *arguments]
            if is_confined
            else [sys.executable, forwarder.__file__, "-", "0", *arguments]
        )
        variables = _variables(session, INSIDE if is_confined else str(sandbox.root), is_confined)
        try:
            finished = await in_thread(
                self._threads,
                lambda: sandbox.run(
                    line,
                    json.dumps(variables).encode(),
                    limits=limits,
                    visible=self._command.visible(self.unix_socket),
                ),
            )
        except BaseException:
            sandbox.kill_running()
            raise
        if finished.stopped_by:
            raise InfrastructureError(
                f"the sandbox stopped {arguments[0]}: it exceeded its limit of "
                f"{finished.stopped_by}: {finished.text[-2000:]}"
            )
        check_exit(arguments, finished.exit_code, finished.output[-2000:])
        try:
            return sandbox.read(ANSWER_FILE).decode("utf-8", "replace").strip()
        except OSError:
            return None

    async def close(self) -> None:
        """Do nothing: a sandbox ends with its rollout."""


def _variables(session: Session, workspace: str, is_confined: bool) -> dict[str, str]:
    """Return the command's variables. In a sandbox, the forwarder's port leads to the gateway."""
    if is_confined:
        path = f"http://127.0.0.1:{_PORT}/session/{session.api_key}"
        session = replace(session, base_url=f"{path}/v1", anthropic_base_url=path)
    return {
        **session.variables(),
        "SPARRING_CASE_FILE": f"{workspace}/{CASE_FILE}",
        "SPARRING_ANSWER_FILE": f"{workspace}/{ANSWER_FILE}",
    }


def _limits_in(workspace: SandboxLimits) -> SandboxLimits:
    """Return the workspace's limits, with the limits of a call raised to at least AGENT_LIMITS. The
    rollout's deadline limits the time, so the limits of time are a day."""
    per_call = ("memory_bytes", "processes", "scratch_bytes", "output_bytes", "open_files")
    return replace(
        workspace,
        **{name: max(getattr(workspace, name), getattr(AGENT_LIMITS, name)) for name in per_call},
        loopback=True,
        wall_seconds=86_400.0,
        cpu_seconds=86_400,
    )
