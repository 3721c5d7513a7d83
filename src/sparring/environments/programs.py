"""Creates the agent of an environment that declares a function, a command or a URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.gateway.agents import FunctionProgram, GatewayAgent, PlayFunction, Program
from sparring.gateway.capture import Label
from sparring.gateway.processes import CommandProgram, ReusedProgram
from sparring.gateway.remote import RemoteProgram
from sparring.gateway.sandboxed import SandboxedCommand, SandboxedProgram
from sparring.gateway.server import GatewayServer


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramDeclaration:
    """An environment's declaration of its agent; one of `play`, `command` and `url` is set.

    Paths are relative to `folder`, which holds the environment's file. `is_sandboxed` runs a
    command in the rollout's sandbox; with `is_unsandboxed` as well, the command runs in a workspace
    without containment.
    """

    name: str
    folder: Path
    model: str | None = None
    label: Label | None = None
    play: PlayFunction | None = None
    url: str | None = None
    command: Sequence[str] = ()
    files: Sequence[str] = ()
    python: str | None = None
    host: str = "127.0.0.1"
    is_reused: bool = False
    is_sandboxed: bool = False
    is_unsandboxed: bool = False


def gateway_agent(declared: ProgramDeclaration) -> GatewayAgent:
    """Return the declared agent. A contained command reaches the gateway through a Unix socket."""
    if declared.command and declared.is_sandboxed:
        program = _sandboxed(declared)
        return GatewayAgent(
            declared.name,
            program,
            model=declared.model,
            label=declared.label,
            make_server=program.make_server,
        )
    return GatewayAgent(
        declared.name,
        _program(declared),
        model=declared.model,
        label=declared.label,
        make_server=partial(GatewayServer, host=declared.host),
    )


def _program(declared: ProgramDeclaration) -> Program:
    if declared.play is not None:
        return FunctionProgram(declared.play)
    if declared.url:
        return RemoteProgram(declared.url)
    kind = ReusedProgram if declared.is_reused else CommandProgram
    return kind(declared.command, declared.folder, _python(declared))


def _sandboxed(declared: ProgramDeclaration) -> SandboxedProgram:
    if declared.is_reused:
        raise InvalidInput(
            f"{declared.name} declares reuse and needs_sandbox: each rollout has a new sandbox, so "
            "no process can be reused; remove reuse or needs_sandbox"
        )
    return SandboxedProgram(
        SandboxedCommand(declared.command, declared.folder, declared.files, _python(declared)),
        is_unsandboxed=declared.is_unsandboxed,
    )


def _python(declared: ProgramDeclaration) -> Path | None:
    return (declared.folder / declared.python).absolute() if declared.python else None
