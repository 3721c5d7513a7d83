"""Kills at random times and at each move of a run's life: every run ends as if nobody had come.

    python benchmarks/kill_matrix.py [--quick] [--seed N]

Trainings of the tiny model, with one rank and with two, each with a service that its measure
needs. Supervisor, trainer, one rank of two, the service and the command line are ended with
SIGKILL, or stopped with SIGSTOP and woken up late; in between, the index is thrown away and built
anew. Meanwhile an operator looks at each run now and then, as operators do: that is what replaces
a supervisor that is gone.

Bars: every run completed, with the weights, the metrics and the rollouts of an undisturbed run;
no process left; the index equal to one built from the folders alone.
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
from sparring.run_folder.files import read_lines
from sparring.run_folder.metrics import read_history_rows
from sparring.run_folder.sharded_log import ShardedLog
from sparring.runs.claims import claimant, newest_epoch
from sparring.runs.index import Index
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import marked
from sparring.runs.worker_group import mark_of

JUDGED = Path(__file__).resolve().parent / "judged"
STEPS = 6
SETTINGS = {
    "max_steps": STEPS, "checkpoint_steps": 2, "max_completion_length": 24, "learning_rate": 1e-3,
    "validation_cases": 4, "restarts": 50, "hung_seconds": 12, "measure_seconds": 90,
}  # fmt: skip
SPARRING = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
AT_A_MOVE = ("queued", "starting", "attempt", "started", "running", "checkpoint", "completed")
LONG, SHORT = 22.0, 3.0  # longer than any limit, and shorter


@dataclass(frozen=True, slots=True)
class Blow:
    """Whom to hit, how, and when: at a move of the run, or so many seconds after the last blow."""

    victim: str
    how: str = "kill"
    when: str | float = 0.0


@dataclass(slots=True)
class Outcome:
    name: str
    blows: list[str] = field(default_factory=list)
    state: str = ""
    is_identical: bool = False
    lost: int = 0
    orphans: list[str] = field(default_factory=list)
    attempts: int = 0


class Matrix:
    """One project, in which runs are started and disturbed."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in ("judged_talk.py", "judge.py"):
            shutil.copy(JUDGED / name, place)
        self.caller = Caller(Role.OWNER, place / "runs", "operator", folder=place)
        self.model = str(development_model("tiny"))
        self.whole: dict[int, RunFolder] = {}
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, ranks: int, *, in_foreground: bool = False) -> RunFolder:
        """By the real command line; returns when it has told the id."""
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

    # ------------------------------------------------------------------ a disturbed run

    def disturbed(self, name: str, ranks: int, blows: list[Blow]) -> Outcome:
        outcome = Outcome(name)
        in_foreground = any(blow.victim == "cli" for blow in blows)
        folder = self.start(ranks, in_foreground=in_foreground)
        looking = threading.Event()
        watcher = threading.Thread(target=self._look_after, args=(folder, looking), daemon=True)
        watcher.start()
        cli = self.children[-1] if in_foreground else None
        for blow in blows:
            self._wait_for(folder, blow.when)
            if self._strike(folder, blow, cli):
                how = "threw away" if blow.victim == "index" else blow.how
                outcome.blows.append(f"{how} {blow.victim} at {blow.when}")
        shown = self._end_of(folder)
        looking.set()
        watcher.join()
        if shown["state"] == RunState.STOPPED:
            resume_run(ResumeRun(run=folder.id), self.caller)
            shown = self._end_of(folder)
        outcome.state = shown["state"]
        outcome.attempts = shown["attempts"]
        whole = self.whole.get(ranks)
        outcome.is_identical = whole is None or digest(folder) == digest(whole)
        outcome.lost = lost_steps(folder, whole)
        outcome.orphans = self._orphans(folder)
        return outcome

    def _look_after(self, folder: RunFolder, done: threading.Event) -> None:
        """An operator who looks now and then; any operation will do."""
        while not done.wait(1.0):
            show_run(RunQuery(run=folder.id), self.caller)

    def _end_of(self, folder: RunFolder) -> dict[str, Any]:
        deadline = time.monotonic() + 300
        while True:
            shown = show_run(RunQuery(run=folder.id), self.caller)
            if shown.state.has_ended or time.monotonic() > deadline:
                return shown.model_dump(mode="json")
            time.sleep(0.5)

    def _wait_for(self, folder: RunFolder, when: str | float) -> None:
        """A move of the run, as soon as it is written; or a while."""
        if isinstance(when, float):
            time.sleep(when)
            return
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            told = list(read_lines(folder.events))
            names = {str(event.get("event")) for event in told}
            names |= {str(event.get("state")) for event in told if event["event"] == "state"}
            if when in names:
                return
            time.sleep(0.005)

    def _strike(self, folder: RunFolder, blow: Blow, cli: subprocess.Popen[bytes] | None) -> bool:
        if blow.victim == "index":
            for path in (folder.path.parent / ".sparring").glob("*"):
                if path.name.startswith(("index.sqlite", "journal")):
                    path.unlink(missing_ok=True)
            reindex_runs(NoArguments(), self.caller)
            return True
        if blow.victim == "reindex":
            return self._kill_a_reindex()
        if blow.victim == "stop":
            stop_run(RunQuery(run=folder.id), self.caller)
            return False
        pid = cli.pid if blow.victim == "cli" and cli else self._pid_of(folder, blow.victim)
        if pid is None:
            return False
        try:
            if blow.how == "kill":
                os.kill(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGSTOP)
                seconds = LONG if blow.how == "stop long" else SHORT
                threading.Timer(seconds, _wake, [pid, _start(pid)]).start()
        except ProcessLookupError:
            return False
        return True

    def _kill_a_reindex(self) -> bool:
        """In the middle of its work."""
        child = subprocess.Popen(
            [*SPARRING, "run", "reindex"], cwd=self.place, stdout=subprocess.DEVNULL
        )
        time.sleep(0.75)
        child.kill()
        child.wait()
        return True

    def _pid_of(self, folder: RunFolder, victim: str) -> int | None:
        """Waits a little: right after a move, the next process is only being started."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if victim == "supervisor":
                holder = claimant(folder, newest_epoch(folder))
                if holder is not None and holder.is_alive:
                    return holder.pid
            for process in marked(mark_of(folder)):
                if _name_of(process) == victim:
                    return process.pid
            if show_run(RunQuery(run=folder.id), self.caller).state.has_ended:
                return None
            time.sleep(0.02)
        return None

    def _orphans(self, folder: RunFolder) -> list[str]:
        """What lives on a little after the end: of the gang, or a supervisor."""
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
    """`trainer` is rank 0, `rank` another one."""
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


def _wake(pid: int, start: float) -> None:
    """Late, and only if it is still the one that was stopped."""
    if start and _start(pid) == start:
        os.kill(pid, signal.SIGCONT)


def digest(folder: RunFolder) -> str:
    there = list_checkpoints(folder.checkpoints)
    if not there:
        return ""
    files = there[-1].manifest["files"]
    return str(next(row["sha256"] for name, row in files.items() if name.endswith("safetensors")))


def lost_steps(folder: RunFolder, whole: RunFolder | None) -> int:
    """Steps that the metrics lack or have twice, and rollouts that differ from the undisturbed."""
    steps = [row["step"] for row in read_history_rows(folder) if "loss" in row]
    wrong = len(set(range(1, STEPS + 1)) ^ set(steps)) + len(steps) - len(set(steps))
    told = Counter(
        (row["attempt"], row["step"]) for row in read_lines(folder.metrics) if "loss" in row
    )
    wrong += sum(count - 1 for count in told.values())
    if whole is not None:
        wrong += len(Counter(rollouts(folder)) - Counter(rollouts(whole)))
        wrong += len(Counter(rollouts(whole)) - Counter(rollouts(folder)))
    return wrong


def rollouts(folder: RunFolder) -> Iterator[tuple[int, int, float | None]]:
    log = ShardedLog(folder.rollout_logs())
    for entry in log.entries(0, len(log)):
        yield (entry.step, entry.id_digest, entry.reward)


def plan(rng: random.Random, *, is_quick: bool) -> list[tuple[str, int, list[Blow]]]:
    """Runs and their blows: each victim at each move, and at random times."""
    moves = [
        ("supervisor", 1, [Blow("supervisor", "kill", move) for move in AT_A_MOVE[1:4]]),
        ("supervisor", 1, [Blow("supervisor", "kill", move) for move in AT_A_MOVE[4:]]),
        ("trainer", 1, [Blow("trainer", "kill", move) for move in ("started", "running")]),
        ("rank", 2, [Blow("rank", "kill", move) for move in ("started", "running", "checkpoint")]),
        ("service", 1, [Blow("service", "kill", move) for move in ("attempt", "running")]),
        ("stopping", 1, [Blow("stop", when="running"), Blow("supervisor", "kill", "stopping"),
                         Blow("trainer", "kill", 0.2)]),
        ("index", 1, [Blow("index", when="running"), Blow("reindex", when=0.1),
                      Blow("supervisor", "kill", 0.1), Blow("index", when=0.1)]),
        ("cli", 1, [Blow("cli", "kill", "starting"), Blow("trainer", "kill", "checkpoint")]),
        ("woken late", 1, [Blow("supervisor", "stop long", "running")]),
        ("woken late", 1, [Blow("trainer", "stop long", "checkpoint")]),
        ("woken late", 2, [Blow("rank", "stop long", "running")]),
        ("woken soon", 1, [Blow("supervisor", "stop short", "attempt"),
                           Blow("service", "stop short", "running"),
                           Blow("trainer", "stop short", 0.2)]),
    ]  # fmt: skip
    if is_quick:
        return [moves[number] for number in (0, 3, 4, 6, 8)]
    for number in range(15):
        ranks = 1 + number % 2
        victims = ["supervisor", "trainer", "service", "rank" if ranks == 2 else "trainer"]
        blows = [
            Blow(
                rng.choice(victims),
                rng.choice(("kill", "kill", "kill", "stop short", "stop long")),
                round(rng.uniform(0.0, 11.0), 2),
            )
            for _ in range(4)
        ]
        moves.append((f"random {number}", ranks, blows))
    return moves


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # ranks share a host, and two runs share this one
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        matrix = Matrix(Path(place))
        planned = plan(random.Random(given.seed), is_quick=given.quick)
        for ranks in sorted({ranks for _, ranks, _ in planned}):
            folder = matrix.start(ranks)
            assert matrix._end_of(folder)["state"] == "completed"
            matrix.whole[ranks] = folder
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(lambda each: told(matrix, *each), planned))
        is_equal = matrix.index_is_equal()
    hit = [blow for outcome in outcomes for blow in outcome.blows]
    kills = [blow for blow in hit if blow.startswith(("kill", "stop"))]
    shown = {
        "benchmark": "kill_matrix",
        "runs": len(outcomes),
        "kills": len(kills),
        "by": Counter(" ".join(blow.split(" at ")[0].split()) for blow in hit),
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


def told(matrix: Matrix, name: str, ranks: int, blows: list[Blow]) -> Outcome:
    outcome = matrix.disturbed(name, ranks, blows)
    print(outcome, file=sys.stderr, flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
