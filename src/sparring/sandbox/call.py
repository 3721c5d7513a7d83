"""Starts one call in a sandbox under its limits, monitors it and kills it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from sparring.contracts.errors import InfrastructureError
from sparring.sandbox.cgroups import ControlGroup
from sparring.sandbox.command import SandboxLimits, search_path
from sparring.sandbox.processes import usage_of_tree
from sparring.sandbox.spawning import spawn_in
from sparring.sandbox.syscalls import seccomp_filter

_CHECK_SECONDS = 0.025
_CHECK_COST_FACTOR = 5  # checks take at most a fifth of a call's time
_PROCESS_CHECK_EVERY = 4  # with a control group, only every fourth check inspects the processes
_KILL_SECONDS = 10.0
_PENDING_SIGNALS = 256
_OPEN_FILES_WITHOUT_GROUP = 64
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

# Builds the bubblewrap command line from the descriptors that the process inherits.
Confine = Callable[[dict[str, int]], list[str]]
IsFull = Callable[[int], bool] | None


class Call:
    """A started program: its outermost process and the descriptor of its output."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.output = output

    def watch(
        self, limits: SandboxLimits, is_full: IsFull, *, counts_memory: bool
    ) -> tuple[bytes, str]:
        """Wait until the program ends or exceeds a limit. Return its output and the name of the
        exceeded limit, or an empty name.

        `is_full(n)` returns whether n more bytes do not fit into the workspace; None if the
        workspace's file system enforces its size.
        """
        poller = select.poll()
        poller.register(self.output, select.POLLIN | select.POLLHUP)
        started = time.monotonic()
        deadline, check_at = started + limits.wall_seconds, started + _CHECK_SECONDS
        output = bytearray()
        is_open = True
        checks = 0
        while True:
            now = time.monotonic()
            if now >= deadline:
                return bytes(output), "time"
            if now >= check_at:
                checks += 1
                is_process_check = counts_memory or checks % _PROCESS_CHECK_EVERY == 0
                cause = "disk" if is_full is not None and is_full(0) else ""
                if is_process_check and not cause:
                    cause = self._exceeded_limit(limits, is_full, counts_memory=counts_memory)
                if cause:
                    return bytes(output), cause
                elapsed = time.monotonic() - now
                check_at = now + max(_CHECK_SECONDS, _CHECK_COST_FACTOR * elapsed)
            if not is_open:  # the program closed its output, but may still run
                if self._has_ended(min(check_at, deadline)):
                    return bytes(output), ""
                continue
            if not poller.poll(1000 * max(0.0, min(check_at, deadline) - now)):
                continue
            with contextlib.suppress(BlockingIOError):  # the program can empty its own pipe
                chunk = os.read(self.output, 65536)
                is_open = bool(chunk)
                output += chunk
            if len(output) > limits.output_bytes:
                return bytes(output[: limits.output_bytes]), "output"

    def _exceeded_limit(
        self, limits: SandboxLimits, is_full: IsFull, *, counts_memory: bool
    ) -> str:
        pid, scratch = self.process.pid, limits.scratch_bytes
        usage = usage_of_tree(pid, scratch, with_memory=counts_memory)
        if usage.unlinked and is_full is not None and is_full(usage.unlinked):
            return "disk"
        if usage.cpu_seconds > limits.cpu_seconds:
            return "time"
        if usage.has_too_many_files:
            return "memory"
        if counts_memory and usage.memory + usage.unlinked > limits.memory_bytes:
            return "memory"
        return ""

    def _has_ended(self, until: float) -> bool:
        try:
            self.process.wait(max(0.001, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


@contextmanager
def start_confined(
    confine: Confine,
    limits: SandboxLimits,
    group: ControlGroup | None,
    *,
    stdin: bytes,
    user: int | None,
    namespace: int | None = None,
) -> Iterator[Call]:
    """Start a contained program. On exit from the context, all its processes are gone.

    bubblewrap reports the pid of the first process in the sandbox, which then waits. The process
    is released after its limits are set.
    """
    with ExitStack() as stack:
        info_read, info_write = _pipe(stack)
        block_read, block_write = _pipe(stack)
        descriptors = {"info_fd": info_write.number, "block_fd": block_read.number}
        program = seccomp_filter(has_group=group is not None, has_loopback=limits.loopback)
        if program is not None:
            descriptors["filter_fd"] = _in_memory(stack, program).number
        command = confine(descriptors)

        def spawn() -> Call:
            with group.spawning() if group is not None else contextlib.nullcontext():
                return _spawn(stack, command, stdin, user, pass_fds=tuple(descriptors.values()))

        call = spawn() if namespace is None else spawn_in(namespace, spawn)
        stack.callback(_kill_and_wait, call.process)
        for descriptor in (info_write, block_read):
            descriptor.close()
        pid = _first_pid(info_read.number)
        if pid is None:
            raise InfrastructureError(f"bubblewrap did not start: {_startup_output(call)}")
        child = os.pidfd_open(pid)
        stack.callback(os.close, child)
        stack.callback(_kill_sandbox, child)
        set_limits(pid, limits, has_group=group is not None)
        if group is not None:
            group.take(pid)
        with contextlib.suppress(BrokenPipeError):  # it has died; its output states the reason
            os.write(block_write.number, b"x")
        yield call


@contextmanager
def start_unconfined(
    command: Sequence[str], limits: SandboxLimits, folder: str, stdin: bytes
) -> Iterator[Call]:
    """Start a program under its limits, without containment."""
    with ExitStack() as stack:
        environment = {"PATH": search_path(), "HOME": folder, "LANG": "C.UTF-8"}
        call = _spawn(stack, list(command), stdin, None, cwd=folder, environment=environment)
        stack.callback(_kill_and_wait, call.process)
        set_limits(call.process.pid, limits, is_confined=False)
        yield call


def set_limits(
    pid: int, limits: SandboxLimits, *, has_group: bool = True, is_confined: bool = True
) -> None:
    """Set hard limits, which an unprivileged process and its descendants cannot raise. Without a
    control group, at most 64 files may be open, which bounds the memory of socket buffers. Without
    containment, the number of processes is not limited: all processes of the user would count."""
    open_files = limits.open_files
    if not has_group:
        open_files = min(open_files, _OPEN_FILES_WITHOUT_GROUP)
    for kind, value in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
        *([(resource.RLIMIT_NPROC, limits.processes)] if is_confined else []),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_SIGPENDING, _PENDING_SIGNALS),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 65536),
    ):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, kind, (value, value))


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its process group; does not wait."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process.kill()


def _spawn(
    stack: ExitStack,
    command: list[str],
    stdin: bytes,
    user: int | None,
    *,
    pass_fds: tuple[int, ...] = (),
    cwd: str = "/",
    environment: Mapping[str, str] = _ENVIRONMENT,
) -> Call:
    output, printed = _pipe(stack)
    os.set_blocking(output.number, False)
    if user is not None:  # so that the program can open /dev/stdout by name
        os.fchown(printed.number, user, user)
    stdin_file = _in_memory(stack, stdin).number if stdin else subprocess.DEVNULL
    process = subprocess.Popen(
        command,
        stdin=stdin_file,
        stdout=printed.number,
        stderr=printed.number,
        env=environment,
        cwd=cwd,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    printed.close()
    return Call(process, output.number)


class _Descriptor:
    """A file descriptor that is closed only once, because its number may be reused afterwards."""

    def __init__(self, number: int, stack: ExitStack) -> None:
        self.number = number
        self._is_open = True
        stack.callback(self.close)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.number)


def _pipe(stack: ExitStack) -> tuple[_Descriptor, _Descriptor]:
    """Return the read end and the write end."""
    read, write = os.pipe()
    return _Descriptor(read, stack), _Descriptor(write, stack)


def _in_memory(stack: ExitStack, content: bytes) -> _Descriptor:
    """Return an anonymous file with this content, positioned at its start. A write to a pipe could
    block, because the program that reads it has not started yet."""
    descriptor = _Descriptor(os.memfd_create("given"), stack)
    os.write(descriptor.number, content)
    os.lseek(descriptor.number, 0, os.SEEK_SET)
    return descriptor


def _first_pid(info_read: int) -> int | None:
    """Return the pid of the sandbox's first process; None if bubblewrap reported none."""
    text = b""
    while b"}" not in text and (chunk := os.read(info_read, 4096)):
        text += chunk
    with contextlib.suppress(ValueError, KeyError):
        return int(json.loads(text)["child-pid"])
    return None


def _startup_output(call: Call) -> str:
    call.process.wait()
    with contextlib.suppress(OSError):
        return os.read(call.output, 2000).decode("utf-8", "replace").strip()
    return ""


def _kill_and_wait(process: subprocess.Popen[bytes]) -> None:
    kill(process)
    process.wait()


def _kill_sandbox(child: int) -> None:
    """Kill a sandbox's first process, and with it all others; wait until it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(child, signal.SIGKILL)
    poller = select.poll()
    poller.register(child, select.POLLIN)
    if not poller.poll(1000 * _KILL_SECONDS):
        raise InfrastructureError(
            "a process of a sandbox cannot be killed; find it with `ps -eo pid,stat,args`"
        )
    # The orphan is a child of this process only if this process adopts orphans, as init does.
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitid(os.P_PIDFD, child, os.WEXITED | os.WNOHANG)
