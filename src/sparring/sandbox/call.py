"""One call in a sandbox: starting it under its limits, watching it, ending it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from sparring.contracts.errors import MachineryFailure
from sparring.sandbox.cgroups import Group
from sparring.sandbox.limits import SandboxLimits
from sparring.sandbox.processes import spent_below
from sparring.sandbox.syscalls import seccomp_filter

_LOOK_SECONDS = 0.025
_LOOKING_SHARE = 5  # looking takes at most one part in so many of a call's time
_THOROUGH = 4  # one look in so many is at the processes too, where a group limits their memory
_DYING_SECONDS = 10.0
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

# Words for bubblewrap from the descriptors that it is handed.
Confine = Callable[[dict[str, int]], list[str]]
IsFull = Callable[[int], bool]


class Call:
    """A started program: the process that stands for it, and where to read what it prints."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.output = output

    def watch(
        self, limits: SandboxLimits, is_full: IsFull, *, counts_memory: bool
    ) -> tuple[bytes, str]:
        """What it prints until it ends, or until it is over one of its limits, which is named."""
        waiting = select.poll()
        waiting.register(self.output, select.POLLIN | select.POLLHUP)
        started = time.monotonic()
        deadline, look_at = started + limits.wall_seconds, started + _LOOK_SECONDS
        kept = bytearray()
        is_open = True
        looks = 0
        while True:
            now = time.monotonic()
            if now >= deadline:
                return bytes(kept), "time"
            if now >= look_at:
                looks += 1
                is_thorough = counts_memory or looks % _THOROUGH == 0
                cause = "disk" if is_full(0) else ""
                if is_thorough and not cause:
                    cause = self._over(limits, is_full, counts_memory=counts_memory)
                if cause:
                    return bytes(kept), cause
                took = time.monotonic() - now
                look_at = now + max(_LOOK_SECONDS, _LOOKING_SHARE * took)
            if not is_open:  # it closed its output and goes on
                if self._has_ended(min(look_at, deadline)):
                    return bytes(kept), ""
                continue
            if not waiting.poll(1000 * max(0.0, min(look_at, deadline) - now)):
                continue
            with contextlib.suppress(BlockingIOError):  # it may take back what it has printed
                chunk = os.read(self.output, 65536)
                is_open = bool(chunk)
                kept += chunk
            if len(kept) > limits.output_bytes:
                return bytes(kept[: limits.output_bytes]), "output"

    def _over(self, limits: SandboxLimits, is_full: IsFull, *, counts_memory: bool) -> str:
        pid, scratch = self.process.pid, limits.scratch_bytes
        spent = spent_below(pid, scratch, with_memory=counts_memory)
        if spent.unlinked and is_full(spent.unlinked):
            return "disk"
        if spent.cpu_seconds > limits.cpu_seconds:
            return "time"
        if spent.has_too_many_files:
            return "memory"
        if counts_memory and spent.memory + spent.unlinked > limits.memory_bytes:
            return "memory"
        return ""

    def _has_ended(self, until: float) -> bool:
        try:
            self.process.wait(max(0.001, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


@contextmanager
def started(
    confine: Confine,
    limits: SandboxLimits,
    group: Group | None,
    *,
    stdin: bytes,
    user: int | None,
) -> Iterator[Call]:
    """A contained program. When this ends, all its processes are gone.

    bubblewrap tells its first process inside and waits; that one is put under its limits, and
    then let go.
    """
    with ExitStack() as stack:
        told, info = _pipe(stack)
        block, release = _pipe(stack)
        handed = {"info_fd": info.number, "block_fd": block.number}
        if (program := seccomp_filter()) is not None:
            handed["filter_fd"] = _in_memory(stack, program).number
        with group.spawning() if group is not None else contextlib.nullcontext():
            call = _spawn(stack, confine(handed), stdin, user, pass_fds=tuple(handed.values()))
        stack.callback(_end, call.process)
        for ours_no_more in (info, block):
            ours_no_more.close()
        pid = _first_inside(told.number)
        if pid is None:
            raise MachineryFailure(f"bubblewrap did not start: {_said(call)}")
        child = os.pidfd_open(pid)
        stack.callback(os.close, child)
        stack.callback(_wait_for_all, child)
        set_limits(pid, limits)
        if group is not None:
            group.take(pid)
        with contextlib.suppress(BrokenPipeError):  # it is gone, and its output says why
            os.write(release.number, b"x")
        yield call


@contextmanager
def started_bare(
    command: Sequence[str], limits: SandboxLimits, folder: str, stdin: bytes
) -> Iterator[Call]:
    """A program that nothing contains, under its limits."""
    with ExitStack() as stack:
        call = _spawn(stack, list(command), stdin, None, cwd=folder)
        stack.callback(_end, call.process)
        set_limits(call.process.pid, limits)
        yield call


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


def end(process: subprocess.Popen[bytes]) -> None:
    """Whoever watches it notices."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process.kill()


def _spawn(
    stack: ExitStack,
    words: list[str],
    stdin: bytes,
    user: int | None,
    *,
    pass_fds: tuple[int, ...] = (),
    cwd: str = "/",
) -> Call:
    output, printed = _pipe(stack)
    os.set_blocking(output.number, False)
    if user is not None:  # so that it can be opened by its name: /dev/stdout
        os.fchown(printed.number, user, user)
    given = _in_memory(stack, stdin).number if stdin else subprocess.DEVNULL
    process = subprocess.Popen(
        words,
        stdin=given,
        stdout=printed.number,
        stderr=printed.number,
        env=_ENVIRONMENT,
        cwd=cwd,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    printed.close()
    return Call(process, output.number)


class _Descriptor:
    """Closed once: by then its number may be somebody else's."""

    def __init__(self, number: int, stack: ExitStack) -> None:
        self.number = number
        self._is_open = True
        stack.callback(self.close)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.number)


def _pipe(stack: ExitStack) -> tuple[_Descriptor, _Descriptor]:
    """The end to read from, and the end to write to."""
    read, write = os.pipe()
    return _Descriptor(read, stack), _Descriptor(write, stack)


def _in_memory(stack: ExitStack, content: bytes) -> _Descriptor:
    """A file without a name, to be read from its beginning. A pipe may hold less than there is,
    and whoever fills it would wait for a program that has not begun."""
    descriptor = _Descriptor(os.memfd_create("given"), stack)
    os.write(descriptor.number, content)
    os.lseek(descriptor.number, 0, os.SEEK_SET)
    return descriptor


def _first_inside(told: int) -> int | None:
    """The sandbox's first process, whose end is the end of all of them."""
    text = b""
    while b"}" not in text and (chunk := os.read(told, 4096)):
        text += chunk
    with contextlib.suppress(ValueError, KeyError):
        return int(json.loads(text)["child-pid"])
    return None


def _said(call: Call) -> str:
    call.process.wait()
    with contextlib.suppress(OSError):
        return os.read(call.output, 2000).decode("utf-8", "replace").strip()
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    end(process)
    process.wait()


def _wait_for_all(child: int) -> None:
    """End a sandbox's first process and wait until the last one is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(child, signal.SIGKILL)
    waiting = select.poll()
    waiting.register(child, select.POLLIN)
    if not waiting.poll(1000 * _DYING_SECONDS):
        raise MachineryFailure("a process of a sandbox does not die; see `ps -eo pid,stat,args`")
    with contextlib.suppress(ChildProcessError, OSError):  # ours to bury where we are its init
        os.waitid(os.P_PIDFD, child, os.WEXITED | os.WNOHANG)
