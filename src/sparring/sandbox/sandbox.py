"""One sandbox: a private workspace, and commands run over it, each contained.

Every call has processes of its own, which are gone when it returns; what lasts from one call
to the next is the workspace.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import select
import signal
import subprocess
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import MachineryFailure
from sparring.sandbox import cgroups, files, places
from sparring.sandbox.command import a_user, confined
from sparring.sandbox.limits import SandboxLimits
from sparring.sandbox.support import probe
from sparring.sandbox.syscalls import seccomp_filter

_LOOK_SECONDS = 0.025
_DYING_SECONDS = 5.0
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
        drops = os.geteuid() == 0 and not is_unsandboxed
        self._user = a_user(number) if drops else None
        self.root = places.new_workspace(number, self._user)
        self._remove = weakref.finalize(self, places.remove, self.root)

    # ------------------------------------------------------------------ files

    def read(self, name: str, most: int | None = None) -> bytes:
        """A plain file of the workspace, up to `most` bytes."""
        return files.read_bytes(self.root, name, most or self.limits.file_bytes)

    def write(self, name: str, content: bytes) -> None:
        use = places.measure(self.root, self.limits.files)
        if len(content) > self.limits.file_bytes or self._is_full(use, len(content)):
            raise OSError(28, f"no room for {name} in the workspace")
        files.write_bytes(self.root, name, content, self._user)

    def names(self, most: int = 1000) -> list[str]:
        return files.list_files(self.root, most)

    # ------------------------------------------------------------------ programs

    def run(self, command: Sequence[str], stdin: bytes = b"") -> Finished:
        """Run a program to its end, or to its limit; all its processes are gone afterwards."""
        use = places.measure(self.root, self.limits.files)
        if use.too_deep or use.size > 2 * self.limits.disk_bytes:
            return Finished(b"", -1, "disk")
        started = time.monotonic()
        group = None if self._is_unsandboxed else cgroups.make(self.limits)
        try:
            with self._started(command, group, stdin) as process:
                output, stopped_by = self._watch(process, counts_memory=group is None)
                code = process.returncode
            if not stopped_by and group is not None and group.hit_memory():
                stopped_by = "memory"
        finally:
            if group is not None:
                group.remove()
        if not stopped_by and self._is_full(places.measure(self.root, self.limits.files)):
            stopped_by = "disk"
        return Finished(output, code, stopped_by, time.monotonic() - started)

    def close(self) -> None:
        """Take the workspace away."""
        self._remove()

    # ------------------------------------------------------------------ inside

    @contextmanager
    def _started(
        self, command: Sequence[str], group: cgroups.Group | None, stdin: bytes
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The process that stands for the sandbox; when this ends, all of them are gone."""
        if self._is_unsandboxed:
            process = self._spawn(command, stdin, {})
            set_limits(process.pid, self.limits)
            try:
                yield process
            finally:
                _end(process, with_its_group=True)
            return
        told, info = os.pipe()
        block, release = os.pipe()
        child: int | None = None
        started: subprocess.Popen[bytes] | None = None
        try:
            try:
                descriptors = {"info_fd": info, "block_fd": block, "filter_fd": _filter()}
                with group.spawning() if group is not None else contextlib.nullcontext():
                    started = self._spawn(command, stdin, descriptors)
            finally:
                os.close(info)
                os.close(block)
            pid = _first_inside(told)
            if pid is not None:  # else it ended at once, and its output says why
                child = os.pidfd_open(pid)
                set_limits(pid, self.limits)
                if group is not None:
                    group.take(pid)
            os.write(release, b"x")
            yield started
        finally:
            os.close(told)
            os.close(release)
            if started is not None:
                _end(started)
            if child is not None:
                _ended(child)
                os.close(child)

    def _spawn(
        self, command: Sequence[str], stdin: bytes, descriptors: dict[str, int | None]
    ) -> subprocess.Popen[bytes]:
        words = list(command)
        if not self._is_unsandboxed:
            words = confined(
                command,
                workspace=self.root,
                limits=self.limits,
                user=self._user,
                **descriptors,
            )
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                cwd=self.root if self._is_unsandboxed else "/",
                pass_fds=[each for each in descriptors.values() if each is not None],
                start_new_session=True,
            )
        finally:
            if (filter_fd := descriptors.get("filter_fd")) is not None:
                os.close(filter_fd)
        if stdin and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(stdin)  # fits into the pipe: see Workspace
                process.stdin.close()
        return process

    def _watch(self, process: subprocess.Popen[bytes], counts_memory: bool) -> tuple[bytes, str]:
        """Read what it prints until it ends, or until it is over one of its limits."""
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        waiting = select.poll()
        waiting.register(pipe, select.POLLIN | select.POLLHUP)
        deadline = time.monotonic() + self.limits.wall_seconds
        look_at = time.monotonic() + _LOOK_SECONDS
        kept = bytearray()
        is_open = True
        while True:
            now = time.monotonic()
            if now >= deadline:
                return bytes(kept), "time"
            if now >= look_at:
                if cause := self._over_limit(process, counts_memory):
                    return bytes(kept), cause
                look_at = time.monotonic() + _LOOK_SECONDS
            if not is_open:  # it closed its output and goes on
                if self._has_ended(process, min(look_at, deadline)):
                    return bytes(kept), ""
                continue
            if not waiting.poll(1000 * max(0.0, min(look_at, deadline) - now)):
                continue
            chunk = os.read(pipe, 65536)
            is_open = bool(chunk)
            kept += chunk
            if len(kept) > self.limits.output_bytes:
                return bytes(kept[: self.limits.output_bytes]), "output"

    def _has_ended(self, process: subprocess.Popen[bytes], until: float) -> bool:
        try:
            process.wait(max(0.001, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _over_limit(self, process: subprocess.Popen[bytes], counts_memory: bool) -> str:
        if self._is_full(places.measure(self.root, self.limits.files)):
            return "disk"
        if counts_memory and _memory_below(process.pid) > self.limits.memory_bytes:
            return "memory"
        return ""

    def _is_full(self, use: places.Use, more: int = 0) -> bool:
        return (
            use.too_deep
            or use.files > self.limits.files
            or use.size + more > self.limits.disk_bytes
        )


def set_limits(pid: int, limits: SandboxLimits) -> None:
    """What a process, and all that it will start, can never raise again."""
    for kind, value in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 65536),
    ):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, kind, (value, value))


def _end(process: subprocess.Popen[bytes], *, with_its_group: bool = False) -> None:
    """Nothing may be left, however the call ended."""
    if process.poll() is None or with_its_group:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _first_inside(told: int) -> int | None:
    """The sandbox's first process, whose end is the end of all of them."""
    text = b""
    while b"}" not in text and (chunk := os.read(told, 4096)):
        text += chunk
    with contextlib.suppress(ValueError, KeyError):
        return int(json.loads(text)["child-pid"])
    return None


def _ended(child: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(child, signal.SIGKILL)
    waiting = select.poll()
    waiting.register(child, select.POLLIN)
    if not waiting.poll(1000 * _DYING_SECONDS):
        raise MachineryFailure("a process of a sandbox does not die; see `ps -eo pid,stat,args`")


def _filter() -> int | None:
    """The seccomp filter in a file without a name; whoever it is handed to reads it once."""
    program = seccomp_filter()
    if program is None:
        return None
    descriptor = os.memfd_create("filter")
    os.write(descriptor, program)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _memory_below(pid: int) -> int:
    """Memory of a process and all below it that is not shared, in bytes."""
    total, waiting = 0, [pid]
    page = os.sysconf("SC_PAGE_SIZE")
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident, shared = Path(f"/proc/{current}/statm").read_text().split()[1:3]
            total += (int(resident) - int(shared)) * page
            below = Path(f"/proc/{current}/task/{current}/children").read_text().split()
            waiting += map(int, below)
    return total
