"""Kills and suspends processes of runs, and checks that each run ends like an undisturbed one.

    python benchmarks/kill_matrix.py [--quick] [--seed N]

Each run trains the tiny model on one rank or on two, with a service that its measure needs. At
events of the run and at random times, the supervisor, the trainer, one rank of two, the service or
the command line is killed (SIGKILL), or suspended (SIGSTOP) and resumed later; in between, the
index is deleted and rebuilt, and a reindex is killed. Meanwhile an operator requests the status of
each run once a second; such a request replaces a dead supervisor.

Bars: every run completes with the weights and the rollouts of an undisturbed run, and with each
step once in its metrics; no process is left; the index equals one that is built from the folders
alone; at least 60 kills and suspensions took place (8 with `--quick`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from sparring.models.cache import development_model
from sparring.operations.operation import Caller, NoArguments, Role
from sparring.operations.run_control import ResumeRun, resume_run, stop_run
from sparring.operations.run_views import RunQuery
from sparring.operations.runs import reindex_runs, show_run
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.contents import read_history_rows
from sparring.run_folder.files import read_lines
from sparring.run_folder.sharded_log import ShardedLog
from sparring.runs.claims import claimant, newest_epoch
from sparring.runs.index import Index
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import marked
from sparring.runs.worker_group import mark_of

JUDGED = Path(__file__).resolve().parent / "judged"
STEPS = 6
SETTINGS = {
    "max_steps": STEPS, "save_steps": 2, "max_completion_length": 24, "learning_rate": 1e-3,
    "validation_cases": 4, "restarts": 50, "hang_timeout": 12, "measure_timeout": 90,
}  # fmt: skip
SPARRING = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
EVENTS = ("queued", "starting", "attempt", "started", "running", "checkpoint", "completed")
# Above and below the limits for a hung rank (12 s) and for a supervisor without heartbeat (15 s).
LONG, SHORT = 22.0, 3.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `target` is a process, "index", "reindex" or "stop"; `how` is "kill", "stop short"
    or "stop long"; `when` is an event or state of the run, or seconds after the last fault."""

    target: str
    how: str = "kill"
    when: str | float = 0.0


@dataclass(slots=True)
class Outcome:
    name: str
    faults: list[str] = field(default_factory=list)
    state: str = ""
    is_identical: bool = False
    lost: int = 0
    orphans: list[str] = field(default_factory=list)
    attempts: int = 0


class Matrix:
    """A project in which runs are started and faults are injected."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in ("judged_talk.py", "judge.py"):
            shutil.copy(JUDGED / name, place)
        self.caller = Caller(Role.OWNER, place / "runs", "operator", folder=place)
        self.model = str(development_model("tiny"))
        self.undisturbed: dict[int, RunFolder] = {}
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, ranks: int, *, in_foreground: bool = False) -> RunFolder:
        """Start a run with the real command line; return when it has printed the run's id."""
        given = {**SETTINGS, "model": self.model, "processes": ranks}
        options = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
        command = [*SPARRING, "train", "judged_talk", "--no-prove", *options]
        if not in_foreground:
            done = subprocess.run(
                [*command, "--detach"], cwd=self.place, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            return RunFolder(self.caller.runs / done.stdout.strip())
        child = subprocess.Popen(
            command, cwd=self.place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.children.append(child)
        assert child.stderr is not None
        line = child.stderr.readline().decode()
        threading.Thread(target=child.stderr.read, daemon=True).start()
        return RunFolder(self.caller.runs / line.split()[1])

    # ------------------------------------------------------------------ a run with faults

    def run_with_faults(self, name: str, ranks: int, faults: list[Fault]) -> Outcome:
        """Run a training with these faults, and compare it with the undisturbed one."""
        outcome = Outcome(name)
        in_foreground = any(fault.target == "cli" for fault in faults)
        folder = self.start(ranks, in_foreground=in_foreground)
        has_ended = threading.Event()
        operator = threading.Thread(target=self._poll, args=(folder, has_ended), daemon=True)
        operator.start()
        cli = self.children[-1] if in_foreground else None
        for fault in faults:
            self._wait_for(folder, fault.when)
            if self._inject(folder, fault, cli):
                how = "threw away" if fault.target == "index" else fault.how
                outcome.faults.append(f"{how} {fault.target} at {fault.when}")
        shown = self._wait_until_ended(folder)
        has_ended.set()
        operator.join()
        if shown["state"] == RunState.STOPPED:
            resume_run(ResumeRun(run=folder.id), self.caller)
            shown = self._wait_until_ended(folder)
        outcome.state = shown["state"]
        outcome.attempts = shown["attempts"]
        undisturbed = self.undisturbed.get(ranks)
        outcome.is_identical = undisturbed is None or digest(folder) == digest(undisturbed)
        outcome.lost = lost_steps(folder, undisturbed)
        outcome.orphans = self._orphans(folder)
        return outcome

    def _poll(self, folder: RunFolder, has_ended: threading.Event) -> None:
        """Request the run's status once a second, which replaces a dead supervisor."""
        while not has_ended.wait(1.0):
            show_run(RunQuery(run=folder.id), self.caller)

    def _wait_until_ended(self, folder: RunFolder) -> dict[str, Any]:
        deadline = time.monotonic() + 300
        while True:
            shown = show_run(RunQuery(run=folder.id), self.caller)
            if shown.state.has_ended or time.monotonic() > deadline:
                return shown.model_dump(mode="json")
            time.sleep(0.5)

    def _wait_for(self, folder: RunFolder, when: str | float) -> None:
        """Wait up to 120 s for this event or state of the run, or for this many seconds."""
        if isinstance(when, float):
            time.sleep(when)
            return
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            events = list(read_lines(folder.events))
            names = {str(event.get("event")) for event in events}
            names |= {str(event.get("state")) for event in events if event["event"] == "state"}
            if when in names:
                return
            time.sleep(0.005)

    def _inject(self, folder: RunFolder, fault: Fault, cli: subprocess.Popen[bytes] | None) -> bool:
        """Inject the fault; return False for a stop request, and if the process is already gone."""
        if fault.target == "index":
            for path in (folder.path.parent / ".sparring").glob("*"):
                if path.name.startswith(("index.sqlite", "journal")):
                    path.unlink(missing_ok=True)
            reindex_runs(NoArguments(), self.caller)
            return True
        if fault.target == "reindex":
            return self._kill_a_reindex()
        if fault.target == "stop":
            stop_run(RunQuery(run=folder.id), self.caller)
            return False
        pid = cli.pid if fault.target == "cli" and cli else self._pid_of(folder, fault.target)
        if pid is None:
            return False
        try:
            if fault.how == "kill":
                os.kill(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGSTOP)
                seconds = LONG if fault.how == "stop long" else SHORT
                threading.Timer(seconds, _resume, [pid, _start(pid)]).start()
        except ProcessLookupError:
            return False
        return True

    def _kill_a_reindex(self) -> bool:
        """Start a reindex, and kill it while it runs."""
        child = subprocess.Popen(
            [*SPARRING, "run", "reindex"], cwd=self.place, stdout=subprocess.DEVNULL
        )
        time.sleep(0.75)
        child.kill()
        child.wait()
        return True

    def _pid_of(self, folder: RunFolder, target: str) -> int | None:
        """Return the pid of the target. Waits up to 20 s: the process may not have started yet."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if target == "supervisor":
                holder = claimant(folder, newest_epoch(folder))
                if holder is not None and holder.is_alive:
                    return holder.pid
            for process in marked(mark_of(folder)):
                if _name_of(process) == target:
                    return process.pid
            if show_run(RunQuery(run=folder.id), self.caller).state.has_ended:
                return None
            time.sleep(0.02)
        return None

    def _orphans(self, folder: RunFolder) -> list[str]:
        """Return the workers and supervisors of the run that are still alive 5 s after its end."""
        deadline = time.monotonic() + 5
        while True:
            left = [f"{each.pid} {_name_of(each)}" for each in marked(mark_of(folder))]
            left += [
                f"{each.pid} supervisor"
                for each in psutil.process_iter()
                if str(folder.path) in _command(each) and each.pid != os.getpid()
            ]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.2)

    def index_is_equal(self) -> bool:
        index = Index(self.caller.runs)
        index.refresh()
        fresh = Index(self.caller.runs, self.place / "fresh" / "index.sqlite")
        fresh.reindex()
        return list(index.all()) == list(fresh.all())


def _name_of(process: psutil.Process) -> str:
    """Return `service`, `trainer` for rank 0, `rank` for another rank, or an empty string."""
    command = _command(process)
    if "judge.py" in command:
        return "service"
    if "sparring.jobs" in command:
        try:
            return "trainer" if process.environ().get("RANK", "0") == "0" else "rank"
        except psutil.Error:
            return ""
    return ""


def _command(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _start(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0


def _resume(pid: int, start: float) -> None:
    """Resume the suspended process, unless another process now has its pid."""
    if start and _start(pid) == start:
        os.kill(pid, signal.SIGCONT)


def digest(folder: RunFolder) -> str:
    """Return the digest of the weights in the last checkpoint."""
    checkpoints = list_checkpoints(folder.checkpoints)
    if not checkpoints:
        return ""
    files = checkpoints[-1].manifest["files"]
    return str(next(row["sha256"] for name, row in files.items() if name.endswith("safetensors")))


def lost_steps(folder: RunFolder, undisturbed: RunFolder | None) -> int:
    """Count steps that the metrics lack or repeat, and rollouts that differ from `undisturbed`."""
    steps = [row["step"] for row in read_history_rows(folder) if "loss" in row]
    wrong = len(set(range(1, STEPS + 1)) ^ set(steps)) + len(steps) - len(set(steps))
    counts = Counter(
        (row["attempt"], row["step"]) for row in read_lines(folder.metrics) if "loss" in row
    )
    wrong += sum(count - 1 for count in counts.values())
    if undisturbed is not None:
        wrong += len(Counter(rollouts(folder)) - Counter(rollouts(undisturbed)))
        wrong += len(Counter(rollouts(undisturbed)) - Counter(rollouts(folder)))
    return wrong


def rollouts(folder: RunFolder) -> Iterator[tuple[int, int, float | None]]:
    log = ShardedLog(folder.rollout_logs())
    for entry in log.entries(0, len(log)):
        yield (entry.step, entry.id_digest, entry.reward)


def plan(rng: random.Random, *, is_quick: bool) -> list[tuple[str, int, list[Fault]]]:
    """Return the runs with their faults: at events of the run, and at random times."""
    runs = [
        ("supervisor", 1, [Fault("supervisor", "kill", event) for event in EVENTS[1:4]]),
        ("supervisor", 1, [Fault("supervisor", "kill", event) for event in EVENTS[4:]]),
        ("trainer", 1, [Fault("trainer", "kill", event) for event in ("started", "running")]),
        ("rank", 2, [Fault("rank", "kill", event)
                     for event in ("started", "running", "checkpoint")]),
        ("service", 1, [Fault("service", "kill", event) for event in ("attempt", "running")]),
        ("stopping", 1, [Fault("stop", when="running"), Fault("supervisor", "kill", "stopping"),
                         Fault("trainer", "kill", 0.2)]),
        ("index", 1, [Fault("index", when="running"), Fault("reindex", when=0.1),
                      Fault("supervisor", "kill", 0.1), Fault("index", when=0.1)]),
        ("cli", 1, [Fault("cli", "kill", "starting"), Fault("trainer", "kill", "checkpoint")]),
        ("woken late", 1, [Fault("supervisor", "stop long", "running")]),
        ("woken late", 1, [Fault("trainer", "stop long", "checkpoint")]),
        ("woken late", 2, [Fault("rank", "stop long", "running")]),
        ("woken soon", 1, [Fault("supervisor", "stop short", "attempt"),
                           Fault("service", "stop short", "running"),
                           Fault("trainer", "stop short", 0.2)]),
    ]  # fmt: skip
    if is_quick:
        return [runs[number] for number in (0, 3, 4, 6, 8)]
    for number in range(15):
        ranks = 1 + number % 2
        targets = ["supervisor", "trainer", "service", "rank" if ranks == 2 else "trainer"]
        faults = [
            Fault(
                rng.choice(targets),
                rng.choice(("kill", "kill", "kill", "stop short", "stop long")),
                round(rng.uniform(0.0, 11.0), 2),
            )
            for _ in range(4)
        ]
        runs.append((f"random {number}", ranks, faults))
    return runs


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # two runs of up to two ranks each share this host
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        matrix = Matrix(Path(place))
        planned = plan(random.Random(given.seed), is_quick=given.quick)
        for ranks in sorted({ranks for _, ranks, _ in planned}):
            folder = matrix.start(ranks)
            assert matrix._wait_until_ended(folder)["state"] == "completed"
            matrix.undisturbed[ranks] = folder
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(lambda each: run_and_print(matrix, *each), planned))
        is_equal = matrix.index_is_equal()
    injected = [fault for outcome in outcomes for fault in outcome.faults]
    kills = [fault for fault in injected if fault.startswith(("kill", "stop"))]
    shown = {
        "benchmark": "kill_matrix",
        "runs": len(outcomes),
        "kills": len(kills),
        "by": Counter(" ".join(fault.split(" at ")[0].split()) for fault in injected),
        "completed": sum(outcome.state == "completed" for outcome in outcomes),
        "identical": sum(outcome.is_identical for outcome in outcomes),
        "lost": sum(outcome.lost for outcome in outcomes),
        "orphans": sum(len(outcome.orphans) for outcome in outcomes),
        "index_equal": is_equal,
        "seconds": round(time.monotonic() - started),
    }
    shown["ok"] = (
        shown["completed"] == shown["identical"] == len(outcomes)
        and not shown["lost"]
        and not shown["orphans"]
        and is_equal
        and len(kills) >= (8 if given.quick else 60)
    )
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def run_and_print(matrix: Matrix, name: str, ranks: int, faults: list[Fault]) -> Outcome:
    outcome = matrix.run_with_faults(name, ranks, faults)
    print(outcome, file=sys.stderr, flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
