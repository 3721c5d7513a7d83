"""One sandbox: a private workspace, and confined commands that run in it.

The processes of a call are gone when it returns. Only the workspace persists from one call to the
next.
"""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sparring.contracts.errors import InfrastructureError, InvalidInput
from sparring.sandbox import cgroups, files, workspaces
from sparring.sandbox.call import Call, kill, start_confined, start_unconfined
from sparring.sandbox.command import (
    SandboxLimits,
    Visible,
    can_switch_user,
    confined,
    spare_user_id,
)
from sparring.sandbox.support import probe

_counter = itertools.count()
_PAGE_BYTES = 4096
_MAX_ARGUMENT_BYTES = 127 * 1024


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a call. `stopped_by` names the limit that it exceeded; empty if it exceeded
    none. `seconds` is wall time."""

    output: bytes
    exit_code: int
    stopped_by: str = ""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The output as text; bytes that are not UTF-8 are replaced."""
        return self.output.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments of one call."""

    command: Sequence[str]
    stdin: bytes
    limits: SandboxLimits
    visible: Sequence[Visible]


class Sandbox:
    """A private workspace, and confined programs that run in it.

    `is_unsandboxed` runs programs in the workspace without containment; an owner may choose it for
    a disposable machine.
    """

    def __init__(
        self, limits: SandboxLimits | None = None, *, is_unsandboxed: bool = False
    ) -> None:
        if not is_unsandboxed:
            probe().require()
        self.limits = limits or SandboxLimits()
        self.is_confined = not is_unsandboxed
        number = next(_counter)
        self._user = spare_user_id(number) if can_switch_user() and not is_unsandboxed else None
        self._workspace = workspaces.new_workspace(
            number, self._user, self.limits, is_bounded=not is_unsandboxed
        )
        self.root = self._workspace.root
        self._remove = weakref.finalize(self, self._workspace.remove)
        self._condition = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    # ------------------------------------------------------------------ files

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return up to `most` bytes of a regular file; `limits.file_bytes` by default."""
        return files.read_bytes(self.root, name, self.limits.file_bytes if most is None else most)

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file. Raises OSError (ENOSPC) if the content does not fit."""
        if len(content) > self.limits.file_bytes or self._is_full(len(content)):
            raise OSError(errno.ENOSPC, f"no room for {name}: workspace full or file too large")
        files.write_bytes(self.root, name, content, self._user)

    def names(self, most: int = 1000) -> list[str]:
        """Return up to `most` names of files and folders, sorted; folders end with a slash."""
        return files.list_files(self.root, most)

    # ------------------------------------------------------------------ programs

    def run(
        self,
        command: Sequence[str],
        stdin: bytes = b"",
        *,
        limits: SandboxLimits | None = None,
        visible: Sequence[Visible] = (),
    ) -> Finished:
        """Run a program until it ends or exceeds a limit; all its processes are gone afterwards.

        `limits` replaces the sandbox's limits for this call. `visible` lists files of the host
        that the program may read.
        """
        _validate_command(command)
        bounds = limits or self.limits
        given = _Given(command, stdin, bounds, tuple(visible))
        if not self._workspace.is_bounded and self._is_full(-self.limits.disk_bytes):
            return Finished(b"", -1, "disk")
        started_at = time.monotonic()
        group = cgroups.make(bounds) if self.is_confined else None
        try:
            with self._start(given, group) as call:
                output, stopped_by = call.watch(
                    bounds,
                    None if self._workspace.is_bounded else self._is_full,
                    counts_memory=group is None,
                )
            if not stopped_by and group is not None and group.has_run_out_of_memory():
                stopped_by = "memory"
        except OSError as error:  # no descriptors or no memory: not the program's fault
            raise InfrastructureError(f"cannot start a sandbox: {error}") from error
        finally:
            if group is not None:
                group.remove()
        if not stopped_by and call.process.returncode and self._ended_full():
            stopped_by = "disk"
        return Finished(output, call.process.returncode, stopped_by, time.monotonic() - started_at)

    def kill_running(self) -> None:
        """Kill the running programs; keep the workspace."""
        with self._condition:
            for process in self._running:
                kill(process)

    def close(self) -> None:
        """Kill running programs, refuse new ones and remove the workspace. Does nothing in a forked
        child: the sandbox belongs to the parent."""
        if os.getpid() != self._workspace.made_by:
            return
        with self._condition:
            self._is_closed = True
            for process in self._running:
                kill(process)
            self._condition.wait_for(lambda: not self._running, timeout=30)
        self._remove()

    # ------------------------------------------------------------------ inside

    @contextmanager
    def _start(self, given: _Given, group: cgroups.ControlGroup | None) -> Iterator[Call]:
        if not self.is_confined:
            starting = start_unconfined(given.command, given.limits, str(self.root), given.stdin)
        else:
            starting = start_confined(
                lambda descriptors: confined(
                    given.command,
                    workspace=self._workspace.folder,
                    enter=self._workspace.enter,
                    empty=workspaces.empty_folder(),
                    limits=given.limits,
                    visible=given.visible,
                    user=self._user,
                    **descriptors,
                ),
                given.limits,
                group,
                stdin=given.stdin,
                user=self._user,
                namespace=self._workspace.namespace,
            )
        process: subprocess.Popen[bytes] | None = None
        try:
            with starting as call:
                process = call.process
                with self._condition:
                    self._running.add(process)
                    if self._is_closed:
                        raise InfrastructureError(
                            "this sandbox is closed, because its rollout is over"
                        )
                yield call
        finally:
            with self._condition:
                if process is not None:
                    self._running.discard(process)
                self._condition.notify_all()

    def _ended_full(self) -> bool:
        """Whether the workspace is full after a call; False if `close` has removed it."""
        try:
            return self._is_full(_PAGE_BYTES)
        except InfrastructureError:
            if self._is_closed:
                return False
            raise

    def _is_full(self, more: int = 0) -> bool:
        return self._workspace.is_full(self.limits, more)


def _validate_command(command: Sequence[str]) -> None:
    """Raise InvalidInput for a command line that the system cannot start."""
    try:
        arguments = [os.fsencode(argument) for argument in command]
    except (UnicodeEncodeError, TypeError) as error:
        raise InvalidInput(f"a command must be a list of strings: {error}") from error
    if not arguments or any(
        b"\0" in argument or len(argument) > _MAX_ARGUMENT_BYTES for argument in arguments
    ):
        raise InvalidInput(
            "a command must have at least one argument, each at most 127 KiB and without zero bytes"
        )
