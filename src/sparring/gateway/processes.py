"""Agents that are commands: one process per rollout, or processes reused for many rollouts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InfrastructureError, InvalidInput
from sparring.gateway.sessions import Session, case_record, case_text, session_record
from sparring.threads import DaemonThreads

_TAIL_BYTES = 4_000
_CLOSE_SECONDS = 0.1
_MAX_THREADS = 65_536
_MAX_ANSWER_BYTES = 4_000_000


class CommandProgram:
    """Runs a command once for each rollout.

    The command reads its case from the file in SPARRING_CASE_FILE, and may write its answer to the
    file in SPARRING_ANSWER_FILE; without an answer, the main agent's last reply counts. The process
    group is killed when the rollout ends.
    """

    def __init__(self, command: Sequence[str], folder: Path, python: Path | None = None) -> None:
        self._command = command_line(command, python)
        self._folder = folder
        self._python = python
        self._threads = DaemonThreads(_MAX_THREADS)
        self._processes: set[subprocess.Popen[bytes]] = set()
        weakref.finalize(self, _kill_all, self._processes)

    async def run(self, session: Session) -> str | None:
        """Run the command and return its answer; raises InfrastructureError if it fails."""
        with tempfile.TemporaryDirectory(prefix="sparring-") as scratch:
            case, answer = Path(scratch, "case.json"), Path(scratch, "answer.txt")
            await asyncio.to_thread(case.write_text, case_text(session.case))
            files = {"SPARRING_CASE_FILE": str(case), "SPARRING_ANSWER_FILE": str(answer)}
            process = start(
                self._command, self._folder, {**session.variables(), **files}, self._python
            )
            self._processes.add(process)
            try:
                tail = await in_thread(self._threads, lambda: _read_tail(process))
            finally:
                kill_group(process)
                self._processes.discard(process)
            check_exit(self._command, process.returncode, tail)
            return read_answer(answer)

    async def close(self) -> None:
        """Do nothing: each process ended with its rollout."""


class ReusedProgram:
    """Runs a command whose processes play many cases in turn, because starting one takes seconds.

    A process reads one JSON object per line from standard input, with `case` and `session`, and
    answers each with the line `{"answer": …}` or `{"error": …}`. Other lines are ignored, but a
    line of more than 4 MB fails the rollout.
    """

    def __init__(self, command: Sequence[str], folder: Path, python: Path | None = None) -> None:
        self._command = command_line(command, python)
        self._folder = folder
        self._python = python
        self._threads = DaemonThreads(_MAX_THREADS)
        self._idle: list[subprocess.Popen[bytes]] = []
        self._processes: set[subprocess.Popen[bytes]] = set()
        weakref.finalize(self, _kill_all, self._processes)

    async def run(self, session: Session) -> Any:
        """Play the case with an idle process, or a new one if none is idle."""
        process = self._take()
        request = {"case": case_record(session.case), "session": session_record(session)}
        line = json.dumps(request).encode() + b"\n"
        try:
            result = await in_thread(self._threads, lambda: _exchange(process, line))
        except BaseException:
            self._end(process)
            raise
        if result is None:
            self._end(process)
            name = " ".join(self._command)
            raise InfrastructureError(
                f"{name} ended with exit code {process.returncode} before it answered"
            )
        self._idle.append(process)
        if result.get("error") is not None:
            raise InfrastructureError(f"the agent failed: {result['error']}")
        return result.get("answer")

    async def close(self) -> None:
        """Do nothing: the next batch reuses the processes."""

    def _take(self) -> subprocess.Popen[bytes]:
        while self._idle:
            process = self._idle.pop()
            if process.poll() is None:
                return process
            self._end(process)
        process = start(self._command, self._folder, {}, self._python, takes_input=True)
        self._processes.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        kill_group(process)
        self._processes.discard(process)


def command_line(command: Sequence[str], python: Path | None) -> list[str]:
    """Return the command; `python` replaces a leading `python` by its interpreter."""
    if isinstance(command, str) or not all(isinstance(each, str) for each in command):
        raise InvalidInput(f"command must be a list of strings, not {command!r}")
    if python is None:
        return list(command)
    interpreter = python / "bin" / "python"
    if not interpreter.exists():
        raise InvalidInput(
            f"python = {str(python)!r} has no bin/python; create it with `python -m venv {python}`"
        )
    is_python = Path(command[0]).name in ("python", "python3")
    return [str(interpreter), *command[1:]] if is_python else list(command)


def start(
    command: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    python: Path | None,
    *,
    takes_input: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process in a new session and process group.

    `python` is the folder of a virtual environment. With `takes_input`, the process has pipes for
    standard input and output; without, a pipe for output and errors together.
    """
    environment = {**os.environ, **variables}
    if python is not None:
        environment["PATH"] = f"{python / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
        environment["VIRTUAL_ENV"] = str(python)
        environment.pop("PYTHONPATH", None)
    try:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE if takes_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if takes_input else subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise InfrastructureError(f"cannot start {command[0]!r}: {error}") from error


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its group, wait for the process, and close its streams."""
    _kill(process)
    # Closing waits for a thread that reads the stream, and a process outside the group may keep
    # the stream open.
    closing = threading.Thread(target=_close, args=(process,), name="sparring-close", daemon=True)
    closing.start()
    closing.join(timeout=_CLOSE_SECONDS)


def check_exit(command: Sequence[str], code: int, tail: bytes) -> None:
    """Raise InfrastructureError with the end of the output if the exit code is not 0."""
    if code:
        text = tail.decode("utf-8", "replace").strip()
        raise InfrastructureError(f"{' '.join(command)} ended with exit code {code}: {text}")


def read_answer(path: Path) -> str | None:
    """Return the first 4 MB of the answer that a program wrote; None if there is no file."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_ANSWER_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None


async def in_thread(threads: DaemonThreads, work: Callable[[], Any]) -> Any:
    """Run a blocking function on a thread; cancelling the call does not wait for the function."""
    return await asyncio.get_running_loop().run_in_executor(threads, work)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _kill_all(processes: set[subprocess.Popen[bytes]]) -> None:
    """Kill processes at exit. Streams stay open, because no thread can be started to close them."""
    for process in list(processes):
        _kill(process)


def _read_tail(process: subprocess.Popen[bytes]) -> bytes:
    """Wait for a program to exit, and return the last 4,000 bytes of its output. A child process
    that keeps the output open delays the return by at most one second."""
    assert process.stdout is not None
    output, tail = process.stdout, bytearray()

    def read() -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(output.fileno(), 65536):
                tail.extend(chunk)
                del tail[:-_TAIL_BYTES]

    reading = threading.Thread(target=read, name="sparring-output", daemon=True)
    reading.start()
    process.wait()
    reading.join(timeout=1.0)
    return bytes(tail)


def _exchange(process: subprocess.Popen[bytes], line: bytes) -> dict[str, Any] | None:
    """Send one line, and return the next result; None if the process has ended.

    Raises InfrastructureError for a line of more than 4 MB.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line)
        process.stdin.flush()
        while reply := process.stdout.readline(_MAX_ANSWER_BYTES):
            if len(reply) == _MAX_ANSWER_BYTES and not reply.endswith(b"\n"):
                raise InfrastructureError(
                    f"the program printed a line of more than {_MAX_ANSWER_BYTES:,} bytes"
                )
            with contextlib.suppress(ValueError, RecursionError):
                result = json.loads(reply)
                if isinstance(result, dict) and ("answer" in result or "error" in result):
                    return result
    except (OSError, ValueError):
        pass
    return None
