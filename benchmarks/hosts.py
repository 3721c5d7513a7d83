"""Measures what heartbeats cost in a simulated run on 100 hosts with 8 ranks each.

The supervisor, the process of each host and the heartbeats are Sparring's own; a rank is a process
that sleeps, and a thread writes its heartbeats. The benchmark counts the calls that name a path in
the run's folder and so reach the file server: opening, renaming, reading attributes, listing,
creating and removing. Bars: at most 10 calls per second and host, at most 10 % of a core for the
supervisor, at most 10 s from a stop request until every host has stopped, and no restart.

    python benchmarks/hosts.py [--hosts 100] [--ranks 8] [--seconds 20] [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.jobs.worker import Heartbeat
from sparring.run_folder import RunFolder
from sparring.run_folder.events import LOCAL_HEARTBEATS, append_event, append_state
from sparring.run_folder.files import read_lines
from sparring.runs import hosts, supervisor, worker_group
from sparring.runs.lifecycle import RunState
from sparring.runs.worker_group import Member, WorkerGroup

HOSTS_PER_PROCESS = 10
CALLS_PER_HOST = 10.0
CORE_PERCENT = 10.0
STOP_SECONDS = 10.0
EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.listdir", "os.scandir")


class SimulatedGroup(WorkerGroup):
    """Starts processes that sleep, and writes their heartbeats until the group is ended."""

    _environment_lock = threading.Lock()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._heartbeats: list[Heartbeat] = []

    def _start_process(
        self, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> Member:
        member = super()._start_process(name, ["sleep", "infinity"], environment)
        rank = int(name.removeprefix("rank-"))
        with self._environment_lock:  # a heartbeat gets its folder from the environment
            os.environ[LOCAL_HEARTBEATS] = environment[LOCAL_HEARTBEATS]
            heartbeat = Heartbeat(self.folder, rank, self.placement.attempt)
        heartbeat.begin()
        heartbeat.watch(lambda: time.monotonic_ns() // 1_000_000)
        heartbeat.note("playing", 1)
        self._heartbeats.append(heartbeat)
        return member

    def end(self) -> list[str]:
        for heartbeat in self._heartbeats:
            heartbeat.end()
        return super().end()


def kill_directly(_: str, pids: Sequence[int] = ()) -> list[str]:
    """Kill these processes. `end_all` also searches all processes of its host for others, and here
    those belong to a hundred hosts."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return []


def count_calls(folder: Path) -> Counter[str]:
    """Start counting this process's calls that name a path in the folder; return the counter."""
    calls: Counter[str] = Counter()
    prefix, stat = str(folder), os.stat

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and arguments and str(arguments[0]).startswith(prefix):
            calls[event] += 1

    def counted_stat(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(prefix):
            calls["os.stat"] += 1
        return stat(path, *arguments, **options)

    sys.addaudithook(on_event)
    os.stat = counted_stat  # type: ignore[assignment]  # os.stat raises no audit event
    return calls


def count_between(calls: Counter[str], begin: Any, end: Any) -> tuple[Counter[str], float, float]:
    """Return the calls, the seconds and the CPU seconds between two events."""
    begin.wait()
    before, began, cpu = calls.copy(), time.monotonic(), time.process_time()
    end.wait()
    return calls - before, time.monotonic() - began, time.process_time() - cpu


def run_hosts(path: Path, numbers: Sequence[int], begin: Any, end: Any, results: Any) -> None:
    """Run the processes of these hosts as threads, and put their calls into `results`."""
    hosts.WorkerGroup = SimulatedGroup  # type: ignore[misc]
    worker_group.end_all = kill_directly  # type: ignore[assignment]
    calls = count_calls(path)
    joined = [hosts.JoinedHost(RunFolder(path), number) for number in numbers]
    threads = [threading.Thread(target=host.run) for host in joined]
    for thread in threads:
        thread.start()
    counted = count_between(calls, begin, end)
    for thread in threads:
        thread.join()
    results.put(("hosts", *counted, 0))


def supervise(path: Path, begin: Any, end: Any, results: Any) -> None:
    """Run the supervisor with the ranks of the first host, and put its calls into `results`."""
    supervisor.WorkerGroup = SimulatedGroup  # type: ignore[misc]
    worker_group.end_all = kill_directly  # type: ignore[assignment]
    calls = count_calls(path)
    codes: list[int] = []
    supervising = supervisor.Supervisor(RunFolder(path), 1)
    thread = threading.Thread(target=lambda: codes.append(supervising.run()))
    thread.start()
    counted = count_between(calls, begin, end)
    thread.join()
    results.put(("supervisor", *counted, codes[0]))


def simulate(root: Path, n_hosts: int, n_ranks: int, seconds: float) -> dict[str, Any]:
    folder = RunFolder(root / "run")
    spec = TrainSpec(
        target="simulated.py:Task",
        environment="simulated",
        policy=PolicySpec(model="simulated"),
        settings=TrainSettings(),
        nodes=n_hosts,
        processes=n_ranks,
        rendezvous="127.0.0.1:29999",
    )
    folder.create(spec.model_dump(mode="json"))
    append_state(folder, RunState.QUEUED, author="benchmark")
    context = multiprocessing.get_context("spawn")
    results, begin, end = context.Queue(), context.Event(), context.Event()
    shared = (begin, end, results)
    processes = [context.Process(target=supervise, args=(folder.path, *shared))]
    for first in range(1, n_hosts, HOSTS_PER_PROCESS):
        numbers = range(first, min(first + HOSTS_PER_PROCESS, n_hosts))
        processes.append(context.Process(target=run_hosts, args=(folder.path, numbers, *shared)))
    for process in processes:
        process.start()
    wait_for_state(folder, "running", 120)
    begin.set()
    time.sleep(seconds)
    end.set()
    append_event(folder, "stop_requested", author="benchmark", reason="the time is over")
    stopped_at = time.monotonic()
    rows = [results.get(timeout=120) for _ in processes]
    stop_timeout = time.monotonic() - stopped_at
    for process in processes:
        process.join(30)
    supervised = next(row for row in rows if row[0] == "supervisor")
    others = [row for row in rows if row[0] == "hosts"]
    calls = sum((row[1] for row in others), Counter[str]())
    per_second = sum(per_second_of(event, others) for event in calls)
    causes = [line["cause"] for line in read_lines(folder.events) if line["event"] == "restart"]
    return {
        "hosts": n_hosts,
        "ranks": n_hosts * n_ranks,
        "calls_per_second": round(per_second, 1),
        "calls_per_second_and_host": round(per_second / (n_hosts - 1), 2),
        "reports_per_second_and_host": round(per_second_of("os.rename", others) / (n_hosts - 1), 2),
        "calls": dict(calls),
        "supervisor_calls_per_second": round(sum(supervised[1].values()) / supervised[2], 1),
        "supervisor_core_percent": round(100 * supervised[3] / supervised[2], 2),
        "stop_timeout": round(stop_timeout, 1),
        "exit_code": supervised[4],
        "restarts": causes,
    }


def per_second_of(event: str, rows: Sequence[tuple[Any, ...]]) -> float:
    return sum(calls[event] / seconds for _, calls, seconds, *_ in rows)


def wait_for_state(folder: RunFolder, state: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if any(line.get("to", line.get("state")) == state for line in read_lines(folder.events)):
            return
        time.sleep(0.2)
    raise TimeoutError(f"the run was not {state} after {seconds:g} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--quick", action="store_true", help="10 hosts, 5 seconds")
    options = parser.parse_args()
    n_hosts, seconds = (10, 5.0) if options.quick else (options.hosts, options.seconds)
    with tempfile.TemporaryDirectory(prefix="sparring-hosts-") as root:
        result = simulate(Path(root), n_hosts, options.ranks, seconds)
    is_ok = (
        result["calls_per_second_and_host"] <= CALLS_PER_HOST
        and result["reports_per_second_and_host"] >= 0.8  # below that, the simulation lacked CPU
        and result["supervisor_core_percent"] <= CORE_PERCENT
        and result["stop_timeout"] <= STOP_SECONDS
        and result["exit_code"] == 103
        and not result["restarts"]
    )
    print(json.dumps({**result, "ok": is_ok}))
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
