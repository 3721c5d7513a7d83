"""Runs on this machine: each in a worker process of its own, in a session of its own.

Killing the command line that started a run never kills the run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sparring.contracts.errors import RunNotFound
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, read_json, read_lines, write_json
from sparring.run_folder.ids import is_plain_name, is_run_of, slug


class RunState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What the folder tells of a run right now."""

    state: RunState
    message: str = ""
    exit_code: int = 0
    kind: str = ""
    pid: int | None = None
    host: str = ""
    progress: dict[str, Any] | None = None


def find_run(runs: Path, name: str) -> RunFolder:
    """A run by its id, by a beginning of it that fits one run only, or, by the name of its
    environment, the newest run of that."""
    if is_plain_name(name):
        if (runs / name / "spec.json").is_file():
            return RunFolder(runs / name)
        beginnings = {name, slug(name)}  # my_agent is at the beginning of my-agent-2026…
        found = [path.parent for each in beginnings for path in runs.glob(f"{each}*/spec.json")]
    else:
        found = []
    if len(found) == 1:
        return RunFolder(found[0])
    found.sort(key=lambda path: (path / "spec.json").stat().st_mtime, reverse=True)
    if found and all(is_run_of(path.name, name) for path in found):
        return RunFolder(found[0])
    if found:
        listed = ", ".join(path.name for path in found[:5])
        raise RunNotFound(
            f"{name!r} fits {len(found)} runs in {runs}, the newest first: {listed}; "
            "write more of it"
        )
    newest = sorted(runs.glob("*/spec.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    listed = ", ".join(path.parent.name for path in newest[:3]) or "none yet"
    raise RunNotFound(f"there is no run {name!r} in {runs.absolute()}; the newest are: {listed}")


def start_worker(folder: RunFolder, *, accept_changes: bool = False) -> subprocess.Popen[bytes]:
    """Start the worker of a run, or its gang; it goes on when this process ends.

    The event keeps whoever asks meanwhile from taking the end of an earlier attempt for this
    one's.
    """
    if not is_held(folder):  # another host's processes may have begun already
        append_line(folder.events, {"format": 1, "event": "queued", "time": time.time()})
    log = folder.log(folder.attempts() + 1)
    log.parent.mkdir(parents=True, exist_ok=True)
    worker = ["-m", "sparring.worker", str(folder.path)]
    if accept_changes:
        worker.append("--accept-changes")
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *_gang_of(folder), *worker],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _gang_of(folder: RunFolder) -> list[str]:
    """What goes before the worker to have it started several times.

    When a rank is lost, torchrun ends the others. Its own restarts stay off: meeting again over
    the old store hangs now and then (gloo, torch 2.13); a new gang meets over a new one.
    """
    spec = folder.read_spec()
    processes, nodes = int(spec.get("processes", 1)), int(spec.get("nodes", 1))
    if processes * nodes == 1:
        return []
    gang = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    gang += ["--max-restarts", "0"]
    if nodes == 1:
        return [*gang, "--standalone"]
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", spec["rendezvous"], "--rdzv-id", folder.id]
    return [*gang, "--nnodes", str(nodes), *meet]


def has_ended(pid: int) -> bool:
    """Whether a worker that this process started is gone; takes note of its end."""
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True


def is_held(folder: RunFolder) -> bool:
    """Whether a live process works on this run."""
    if not folder.lock.exists():
        return False
    with folder.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def status_of(folder: RunFolder) -> RunStatus:
    """The state that the worker's own facts, and whether it lives, amount to."""
    is_alive = is_held(folder)  # asked first: a worker that ends meanwhile has said why
    last: dict[str, Any] = {}
    for event in read_lines(folder.events):
        name = event.get("event")
        if last.get("event") == "failed" and name not in ("queued", "started"):
            continue  # of a gang, the first rank to fail has the cause; the others are ended
        if name in ("queued", "started", "stopped", "completed", "failed"):
            last = event
    progress = read_json(folder.heartbeat) if folder.heartbeat.is_file() else None
    name, pid = last.get("event"), last.get("pid")
    if name == "completed":
        return RunStatus(RunState.COMPLETED, progress=progress)
    if name == "stopped":
        return RunStatus(
            RunState.STOPPED, "stopped before its end", 103, "Stopped", progress=progress
        )
    if name == "failed":
        message, code = str(last.get("message", "")), int(last.get("exit_code", 100))
        return RunStatus(
            RunState.FAILED, message, code, str(last.get("kind", "")), progress=progress
        )
    if is_alive:
        state = RunState.RUNNING if progress else RunState.STARTING
        return RunStatus(state, pid=pid, host=str(last.get("host", "")), progress=progress)
    if name in (None, "queued"):
        return RunStatus(RunState.STARTING, progress=progress)
    message = f"its process ended without a word; see {folder.log(folder.attempts())}"
    return RunStatus(RunState.FAILED, message, 100, "RunFailed", progress=progress)


def ask_to_stop(folder: RunFolder) -> None:
    """Leave word in the folder, which every host and a worker that is still loading can see;
    and, where the worker is on this host, SIGTERM, which is sooner."""
    write_json(folder.stop_request, {"format": 1, "time": time.time()})
    status = status_of(folder)
    if status.pid is not None and status.host == socket.gethostname():
        with contextlib.suppress(ProcessLookupError):
            os.kill(status.pid, signal.SIGTERM)
