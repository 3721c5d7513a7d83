"""Runs the first hour of a new user: init, env test, check, train with its proof, and ship.

    python benchmarks/first_hour.py [--start tool|documents|game] [--seed N] [--quick] [--keep FILE]

Runs every starting point of `sparring init` with three seeds, each in an empty folder, with
SmolLM2-135M, as README says, and prints a line for each: the minutes of every command and the last
line that it printed, and what the runs found. Bars: on held-out cases, every measure that is not a
guard is at most 40 % before and at least 80 % after; training takes at most 10 minutes, and all
commands at most 25 for `tool`, which is README's; no process takes more than 4 GB of memory at any
time, or 5 GB in a shipment, which holds several forms of the model; `check` says learnable, and its
estimate of the training time is within a factor of two; every file is shipped. `stolen` is the
share of CPU time that the host of a virtual machine gave to others meanwhile.

`--quick` runs one starting point with one seed, and requires only the bars on held-out cases. All
nine take three hours: `--keep` appends each result to a file, and reuses the results that the file
already has.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

STARTS = ("tool", "documents", "game")
BEFORE, AFTER, MINUTES, FACTOR = 0.4, 0.8, 10.0, 2.0
GIGABYTES = {"check": 4.0, "train": 4.0, "proof": 4.0, "ship": 5.0}
WHOLE = {"tool": 25.0}  # minutes of all commands
COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]


class PeakMemory:
    """Polls the memory of processes whose command line names the folder. `peaks` has the largest
    process of each kind of run."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self.peaks = {"check": 0, "train": 0, "proof": 0, "ship": 0}

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._done.wait(0.2):
            for process in psutil.process_iter(["cmdline", "memory_info"]):
                info = process.info
                for part in info["cmdline"] or ():
                    if info["memory_info"] and part.startswith(self._folder):
                        kind = Path(part).name.partition("-")[0]
                        kind = kind if kind in self.peaks else "train"
                        self.peaks[kind] = max(self.peaks[kind], info["memory_info"].rss)


def share_stolen(before: Any) -> float:
    """The share of CPU time stolen since `before`; 0 where the system does not count it."""
    after = psutil.cpu_times()
    passed = sum(after) - sum(before)
    return (getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)) / max(passed, 1e-9)


class Terminal:
    """Types commands in a folder; `typed` has the minutes and the last line of each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.typed: list[dict[str, Any]] = []

    def type(self, *arguments: str) -> None:
        began = time.monotonic()
        output = self._output(*arguments)
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        minutes = round((time.monotonic() - began) / 60, 1)
        typed = {"command": " ".join(arguments), "minutes": minutes, "last_line": lines[-1]}
        self.typed.append(typed)

    def answer(self, *arguments: str) -> Any:
        return json.loads(self._output(*arguments, "--json").splitlines()[-1])

    def _output(self, *arguments: str) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            output = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
            raise SystemExit(f"sparring {' '.join(arguments)}: {output}")
        return done.stdout


def first_hour(start: str, seed: int) -> dict[str, Any]:
    # The supervisor of a run may still write to the folder when the command has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        terminal = Terminal(folder)
        times = psutil.cpu_times()
        with PeakMemory(folder) as memory:
            terminal.type("init", "my_agent", "--from", start)
            terminal.type("env", "test", "my_agent")
            terminal.type("check", "my_agent", "--set", f"seed={seed}")
            terminal.type("train", "my_agent", "--set", f"seed={seed}")
            (training,) = terminal.answer("run", "list", "--kind", "train")["runs"]
            terminal.type("ship", training["run"])
        stolen = round(share_stolen(times), 3)
        listed = terminal.answer("run", "list")["runs"]
        runs = {
            run["kind"]: terminal.answer("run", "results", run["run"])["summary"] for run in listed
        }
    found = figures(start, seed, runs, memory.peaks, terminal.typed)
    return {**found, "stolen": stolen}


def figures(
    start: str,
    seed: int,
    runs: dict[str, Any],
    peaks: dict[str, int],
    typed: list[dict[str, Any]],
) -> dict[str, Any]:
    checked, trained, proof, shipped = (runs[kind] for kind in ("check", "train", "prove", "ship"))
    minutes = trained["seconds"] / 60
    estimated = 60 * checked["estimate"]["hours"]["value"]
    measures = {
        name: [round(each["before"], 3), round(each["after"], 3)]
        for name, each in proof["measures"].items()
        if not each["is_guard"]
    }
    factor = max(minutes, estimated) / max(1e-9, min(minutes, estimated))
    learned = all(before <= BEFORE and after >= AFTER for before, after in measures.values())
    found = {
        "start": start,
        "seed": seed,
        "check": checked["verdict"],
        "commands": typed,
        "whole_minutes": round(sum(each["minutes"] for each in typed), 1),
        "measures": measures,
        "reward": [round(proof["reward"][side], 3) for side in ("before", "after")],
        "verdict": f"{proof['verdict']}, {proof['level']}",
        "steps": trained["steps"],
        "training_minutes": round(minutes, 1),
        "estimated_minutes": round(estimated, 1),
        "estimate_off_by": round(factor, 2),
        "peak_gigabytes": {kind: round(peak / 1e9, 2) for kind, peak in peaks.items()},
        "shipped": shipped["verdict"],
        "learned": learned,
    }
    fits = minutes <= MINUTES and factor <= FACTOR
    fits &= all(peak <= GIGABYTES[kind] * 1e9 for kind, peak in peaks.items())
    fits &= found["whole_minutes"] <= WHOLE.get(start, float("inf"))
    is_whole = checked["verdict"] == "learnable" and shipped["verdict"] != "refused"
    return {**found, "ok": learned and fits and is_whole}


def read_results(file: Path | None) -> dict[tuple[str, int], dict[str, Any]]:
    if file is None or not file.is_file():
        return {}
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {(each["start"], each["seed"]): each for each in lines}


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--start", choices=STARTS, action="append")
    options.add_argument("--seed", type=int, action="append")
    options.add_argument("--quick", action="store_true")
    options.add_argument("--keep", type=Path)
    given = options.parse_args()
    starts = given.start or (STARTS[:1] if given.quick else STARTS)
    seeds = given.seed or ([0] if given.quick else [0, 1, 2])
    saved = read_results(given.keep)
    found = []
    for seed in seeds:
        for start in starts:
            found.append(saved.get((start, seed)) or first_hour(start, seed))
            print(json.dumps(found[-1]), flush=True)
            if given.keep and (start, seed) not in saved:
                with given.keep.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    bar = {
        "before": BEFORE, "after": AFTER, "minutes": MINUTES, "gigabytes": GIGABYTES,
        "factor": FACTOR, "whole_minutes": WHOLE,
    }  # fmt: skip
    is_fine = all(each["learned"] if given.quick else each["ok"] for each in found)
    print(json.dumps({"benchmark": "first_hour", "runs": found, "bar": bar, "ok": is_fine}))
    return 0 if is_fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
