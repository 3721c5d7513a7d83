"""A world with a private, sandboxed workspace and five tools for its files and commands."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from sparring.contracts.errors import InvalidInput
from sparring.player.worlds import tool
from sparring.sandbox import Finished, Sandbox, SandboxLimits
from sparring.sandbox.command import python

TOOLS = ("run_python", "run_shell", "read_file", "write_file", "list_files")
_MAX_PROGRAM_BYTES = 200_000
_SHOWN_CHARACTERS = 16_000
_STOP_REASONS = {
    "time": "stopped: over {limits.wall_seconds:g} s of time or {limits.cpu_seconds} s of CPU",
    "memory": "stopped: it used more memory than its limit",
    "disk": "stopped: the workspace is full",
    "output": "stopped: it printed too much",
}


class Workspace:
    """One rollout's files. Measures read them after the rollout with `read`, `has` and `names`.

    `tools` names the tools that the agent gets; the default is all five.
    """

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        *,
        tools: Sequence[str] | None = None,
        limits: SandboxLimits | None = None,
        is_unsandboxed: bool = False,
    ) -> None:
        self.offered_tools = tuple(tools) if tools is not None else None
        for name in self.offered_tools or ():
            if name not in TOOLS:
                near = difflib.get_close_matches(name, TOOLS, 1)
                hint = f"did you mean {near[0]}?" if near else f"use {', '.join(TOOLS)}"
                raise InvalidInput(f"a workspace has no tool {name!r}; {hint}")
        self.sandbox = Sandbox(limits, is_unsandboxed=is_unsandboxed)
        for name, content in (files or {}).items():
            self.sandbox.write(name, content.encode())

    # ------------------------------------------------------------------ for the agent

    @tool
    def run_python(self, code: str) -> str:
        """Run a Python program in the workspace and show what it prints.

        Args:
            code: the program.
        """
        return self._report(self._run([python(), "-"], code.encode("utf-8", "replace")))

    @tool
    def run_shell(self, command: str) -> str:
        """Run a shell command in the workspace and show what it prints.

        Args:
            command: the command.
        """
        return self._report(self._run(["/bin/sh", "-s"], command.encode("utf-8", "replace")))

    @tool
    def read_file(self, path: str) -> str:
        """Show a file of the workspace.

        Args:
            path: its name.
        """
        try:
            limit = _SHOWN_CHARACTERS * 4
            content = self.sandbox.read(path, limit + 1)
            note = f"\n… (cut after {limit:,} bytes)" if len(content) > limit else ""
            return content[:limit].decode("utf-8", "replace") + note
        except (OSError, InvalidInput) as error:
            return _refusal(path, error)

    @tool
    def write_file(self, path: str, content: str) -> str:
        """Create or replace a file of the workspace.

        Args:
            path: its name.
            content: all of its text.
        """
        try:
            self.sandbox.write(path, content.encode("utf-8", "replace"))
        except (OSError, InvalidInput) as error:
            return _refusal(path, error)
        return f"wrote {path}"

    @tool
    def list_files(self) -> str:
        """List the files and folders of the workspace."""
        return "\n".join(self.names()) or "the workspace is empty"

    # ------------------------------------------------------------------ for measures

    def read(self, name: str) -> str:
        """Return the text of a file; raises FileNotFoundError if it does not exist."""
        limit = self.sandbox.limits.disk_bytes  # a measure must not judge a truncated file
        return self.sandbox.read(name, limit).decode("utf-8", "replace")

    def has(self, name: str) -> bool:
        """Return whether a regular file has this name."""
        try:
            self.sandbox.read(name, 1)
        except (OSError, InvalidInput):
            return False
        return True

    def names(self) -> list[str]:
        """Return up to 1,000 names of files and folders, sorted; folders end with a slash."""
        return self.sandbox.names()

    def after_rollout(self) -> None:
        """Delete the workspace; called after the rollout has been judged."""
        self.sandbox.close()

    # ------------------------------------------------------------------ internal

    def _run(self, command: list[str], program: bytes) -> Finished:
        if len(program) > _MAX_PROGRAM_BYTES:
            return Finished(b"the program is too long; write it to a file, and run that", 2)
        return self.sandbox.run(command, program or b"\n")

    def _report(self, finished: Finished) -> str:
        text = finished.text.rstrip()
        if len(text) > _SHOWN_CHARACTERS:
            note = f"\n(cut off: {len(text):,} characters, {_SHOWN_CHARACTERS:,} shown)"
            text = text[:_SHOWN_CHARACTERS] + note
        if finished.stopped_by:
            note = _STOP_REASONS[finished.stopped_by].format(limits=self.sandbox.limits)
        elif finished.exit_code:
            note = f"exit code {finished.exit_code}"
        else:
            return text or "(it printed nothing)"
        return f"{text}\n({note})" if text else f"({note})"


def _refusal(path: str, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no file {path}"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder"
    if isinstance(error, InvalidInput):
        return str(error)
    return f"{path}: {getattr(error, 'strerror', None) or error}"
