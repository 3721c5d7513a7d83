"""One sandbox: a private workspace, and commands run over it, each contained.

Every call has processes of its own, which are gone when it returns; what lasts from one call
to the next is the workspace.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sparring.contracts.errors import MachineryFailure
from sparring.sandbox import cgroups, files, places
from sparring.sandbox.call import Call, end, started, started_bare
from sparring.sandbox.command import a_user, can_drop, confined
from sparring.sandbox.limits import SandboxLimits
from sparring.sandbox.support import probe

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Finished:
    """How a call ended. `stopped_by` names the limit that ended it, if one did."""

    output: bytes
    exit_code: int
    stopped_by: str = ""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace")


class Sandbox:
    """Files, and programs that can reach nothing else.

    `is_unsandboxed` runs programs in the workspace without containing them: an owner's
    explicit choice, for a machine that may be lost.
    """

    def __init__(
        self, limits: SandboxLimits | None = None, *, is_unsandboxed: bool = False
    ) -> None:
        if not is_unsandboxed:
            probe().require()
        self.limits = limits or SandboxLimits()
        self._is_unsandboxed = is_unsandboxed
        number = next(_numbers)
        self._user = a_user(number) if can_drop() and not is_unsandboxed else None
        self.root = places.new_workspace(number, self._user)
        self._remove = weakref.finalize(self, places.remove_by, os.getpid(), self.root)
        self._changing = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    # ------------------------------------------------------------------ files

    def read(self, name: str, most: int | None = None) -> bytes:
        """A plain file of the workspace, up to `most` bytes."""
        return files.read_bytes(self.root, name, most or self.limits.file_bytes)

    def write(self, name: str, content: bytes) -> None:
        if len(content) > self.limits.file_bytes or self._is_full(len(content)):
            raise OSError(28, f"no room for {name} in the workspace")
        files.write_bytes(self.root, name, content, self._user)

    def names(self, most: int = 1000) -> list[str]:
        return files.list_files(self.root, most)

    # ------------------------------------------------------------------ programs

    def run(self, command: Sequence[str], stdin: bytes = b"") -> Finished:
        """Run a program to its end, or to its limit; all its processes are gone afterwards."""
        use = places.measure(self.root, self.limits.files)
        is_over = use.files > self.limits.files or use.size > 2 * self.limits.disk_bytes
        if use.is_opaque or is_over:
            return Finished(b"", -1, "disk")
        began = time.monotonic()
        group = None if self._is_unsandboxed else cgroups.make(self.limits)
        try:
            with self._started(command, group, stdin) as call:
                output, stopped_by = call.watch(
                    self.limits, self._is_full, counts_memory=group is None
                )
            if not stopped_by and group is not None and group.hit_memory():
                stopped_by = "memory"
        except OSError as error:  # no descriptors, no memory: never the program's doing
            raise MachineryFailure(f"a sandbox could not be started: {error}") from error
        finally:
            if group is not None:
                group.remove()
        if not stopped_by and self._is_full():
            stopped_by = "disk"
        return Finished(output, call.process.returncode, stopped_by, time.monotonic() - began)

    def close(self) -> None:
        """End what still runs, let nothing else begin, and take the workspace away."""
        with self._changing:
            self._is_closed = True
            for process in self._running:
                end(process)
            self._changing.wait_for(lambda: not self._running, timeout=30)
        self._remove()

    # ------------------------------------------------------------------ inside

    @contextmanager
    def _started(
        self, command: Sequence[str], group: cgroups.Group | None, stdin: bytes
    ) -> Iterator[Call]:
        if self._is_unsandboxed:
            starting = started_bare(command, self.limits, str(self.root), stdin)
        else:
            starting = started(
                lambda handed: confined(
                    command,
                    workspace=self.root,
                    empty=places.empty_folder(),
                    limits=self.limits,
                    user=self._user,
                    **handed,
                ),
                self.limits,
                group,
                stdin=stdin,
                user=self._user,
            )
        process: subprocess.Popen[bytes] | None = None
        try:
            with starting as call:
                process = call.process
                with self._changing:
                    self._running.add(process)
                    if self._is_closed:
                        raise MachineryFailure("the rollout is over, and its sandbox is closed")
                yield call
        finally:
            with self._changing:
                if process is not None:
                    self._running.discard(process)
                self._changing.notify_all()

    def _is_full(self, more: int = 0) -> bool:
        use = places.measure(self.root, self.limits.files)
        over = use.files > self.limits.files or use.size + more > self.limits.disk_bytes
        return use.is_opaque or over
