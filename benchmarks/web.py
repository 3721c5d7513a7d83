"""Measures what the web view costs with 100,000 runs, ten million rollouts and fifty viewers.

    python benchmarks/web.py [--quick]

Times are 95th percentiles over HTTP; the server is a separate process. Bars: 200 ms for a page of
runs, for the first page, any page and a step's page of rollouts, and for a live update; 500 ms for
a rollout of 1 MB; 5 % of one core with 50 viewers of a running run; the median step of a process
that works beside it is at most 5 % slower. `--quick` creates 5,000 runs and 200,000 rollouts, and
allows three times the bars.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil

from run_index import make_ended
from sparring.contracts.training import TrainSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import append_line, dump_line, write_json
from sparring.run_folder.shard_files import SHARD_ROLLOUTS
from sparring.runs.lifecycle import RunState

PAGE_BAR, LARGE_BAR, CPU_BAR, STEP_BAR = 0.2, 0.5, 0.05, 0.05
VIEWERS = 50
STEP_HASHES = 10  # per step, of 1 MB each
STEPS = itertools.count(1)  # metrics have one row per attempt and step
ENTRY = struct.Struct("<QQIIffBBHI")
SPAWN = multiprocessing.get_context("spawn")


def make_run(runs: Path, name: str) -> RunFolder:
    folder = RunFolder(runs / name)
    folder.create(TrainSpec(target="x.py:X", environment="x").model_dump(mode="json"))
    append_state(folder, RunState.QUEUED, author="owner")
    return folder


def record(number: str, text: str = "There are 12 lamps.") -> dict[str, Any]:
    judged = {"measure": "numeric", "outcome": "passed", "score": 1.0, "reason": "12"}
    return {
        "format": 1,
        "id": f"case-{number}.0.0",
        "key": {"seed": 0, "step": 0, "index": 0},
        "case": {"id": f"case-{number}", "input": "lamps?", "expected": 12, "split": "training"},
        "ending": "answered",
        "detail": "",
        "answer": text[:60],
        "reward": 1.0,
        "judgements": [{**judged, "weight": 1.0, "threshold": 1.0, "cause": None}],
        "turns": 1,
        "tokens": {"prompt": 9, "sampled": 9},
        "messages": [{"role": "assistant", "content": text}],
        "tool_calls": [],
        "rows": [],
    }


def make_rollouts(folder: RunFolder, count: int) -> None:
    """Write shards as the rollout writer does, from a template: ids have a fixed width."""
    place = folder.rollouts()
    place.mkdir(parents=True)
    lines = [dump_line(record(f"SSSSS-{n:04d}")) for n in range(SHARD_ROLLOUTS)]
    template, length = b"".join(lines), len(lines[0])
    for shard in range(count // SHARD_ROLLOUTS):
        mark = f"{shard:05d}"
        (place / f"{mark}.jsonl").write_bytes(template.replace(b"SSSSS", mark.encode()))
        entries = bytearray()
        for n in range(SHARD_ROLLOUTS):
            digest = hashlib.sha256(f"case-{mark}-{n:04d}.0.0".encode()).digest()[:8]
            step = (shard * SHARD_ROLLOUTS + n) // 1024
            packed = (n * length, length, step, 1.0, 1.0, 0, 0, 0, 9)
            entries += ENTRY.pack(int.from_bytes(digest, "little"), *packed)
        (place / f"{mark}.idx").write_bytes(entries)


def make_large(folder: RunFolder) -> str:
    place = folder.rollouts()
    place.mkdir(parents=True)
    line = dump_line(record("large", "x" * 1_000_000))
    name = "case-large.0.0"
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    (place / "00000.jsonl").write_bytes(line)
    entry = ENTRY.pack(digest, 0, len(line), 0, 1.0, 1.0, 0, 0, 0, 9)
    (place / "00000.idx").write_bytes(entry)
    return name


def p95(work: Callable[[], object], times: int) -> float:
    took = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return sorted(took)[int(0.95 * (len(took) - 1))]


class Served:
    """`sparring view` in a separate process, and a signed-in client."""

    def __init__(self, runs: Path) -> None:
        command = [sys.executable, "-m", "sparring", "view", "--no-browser", "--runs", str(runs)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=runs)
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found is not None
        self.base = found.group().split("/enter")[0]
        self.client = httpx2.Client(base_url=self.base, timeout=600)
        for _ in range(200):
            try:
                self.client.get(found.group())
                break
            except httpx2.ConnectError:
                time.sleep(0.1)

    def call(self, operation: str, **given: Any) -> dict[str, Any]:
        answer = self.client.post(f"/api/{operation}", json=given)
        answer.raise_for_status()
        result: dict[str, Any] = answer.json()
        return result

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def follow_run(base: str, cookies: dict[str, str], run: str, seconds: float, found: Any) -> None:
    """Follow a run with fifty viewers; put the time from writing to arrival into `found`."""

    async def view(client: httpx2.AsyncClient, latencies: list[float]) -> None:
        address = f"/api/live?run={run}&metrics=0&events=0"
        async with client.stream("GET", address) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    for row in json.loads(line[6:]).get("rows", ()):
                        if row.get("written", 0) > started:
                            latencies.append(time.time() - row["written"])

    async def main() -> list[float]:
        latencies: list[float] = []
        limits = httpx2.Limits(max_connections=VIEWERS + 5)
        given: dict[str, Any] = {"cookies": cookies, "limits": limits, "timeout": None}
        async with httpx2.AsyncClient(base_url=base, **given) as client:
            viewers = [asyncio.ensure_future(view(client, latencies)) for _ in range(VIEWERS)]
            await asyncio.wait(viewers, timeout=seconds)
            for each in viewers:
                each.cancel()
            await asyncio.gather(*viewers, return_exceptions=True)
        return latencies

    started = time.time()
    found.put(asyncio.run(main()))


def work_steps(folder: RunFolder, seconds: float) -> list[float]:
    """Time small steps of fixed work, and write a row of metrics every second, like a trainer."""
    took = []
    written = time.monotonic()
    end = written + seconds
    while time.monotonic() < end:
        start = time.process_time()
        data = b"x" * 1_000_000
        for _ in range(STEP_HASHES):
            data = hashlib.sha256(data).digest() + data[32:]
        took.append(time.process_time() - start)
        if time.monotonic() - written >= 1:
            written = time.monotonic()
            row = {"attempt": 1, "step": next(STEPS), "reward": 0.5, "written": time.time()}
            append_line(folder.metrics, row)
    return took


def measure_live(served: Served, folder: RunFolder, rounds: int, seconds: float) -> dict[str, Any]:
    """Alternate between no viewers and fifty, and compare adjacent measurements."""
    ratios: list[float] = []
    latencies: list[float] = []
    shares: list[float] = []
    cookies = dict(served.client.cookies)
    server = psutil.Process(served.process.pid)
    for _ in range(rounds):
        alone = statistics.median(work_steps(folder, seconds))
        found = SPAWN.Queue()
        given = (served.base, cookies, folder.id, seconds + 8, found)
        viewers = SPAWN.Process(target=follow_run, args=given)
        viewers.start()
        time.sleep(6)  # until all viewers are connected
        before, start = sum(server.cpu_times()[:2]), time.monotonic()
        ratios.append(statistics.median(work_steps(folder, seconds)) / alone)
        shares.append((sum(server.cpu_times()[:2]) - before) / (time.monotonic() - start))
        latencies += found.get()
        viewers.join()
    least = VIEWERS * rounds * (int(seconds) - 2)
    assert len(latencies) >= least, f"{len(latencies)} updates arrived; {least} were expected"
    latencies.sort()
    return {
        "live_updates": len(latencies),
        "live_p95_seconds": round(latencies[int(0.95 * (len(latencies) - 1))], 4),
        "server_core_share": round(statistics.median(shares), 4),
        "step_ratio": round(statistics.median(ratios), 4),
    }


def measure(count_runs: int, count_rollouts: int, *, quick: bool) -> dict[str, Any]:
    """Create runs in a temporary folder, and return all figures."""
    figures: dict[str, Any] = {"runs": count_runs, "rollouts": count_rollouts}
    with tempfile.TemporaryDirectory(prefix="sparring-web-") as temporary:
        runs = Path(temporary) / "runs"
        runs.mkdir()
        start = time.monotonic()
        make_ended(runs, 0, count_runs)
        many, large = make_run(runs, "many-1"), make_run(runs, "large-1")
        make_rollouts(many, count_rollouts)
        name = make_large(large)
        for folder in (many, large):
            append_state(folder, RunState.STOPPED, author="owner", exit_code=103)
        figures["making_seconds"] = round(time.monotonic() - start, 1)
        served = Served(runs)
        start = time.monotonic()
        served.call("run.list", count=1)
        figures["first_index_seconds"] = round(time.monotonic() - start, 1)
        times = 20 if quick else 100
        last = count_rollouts // SHARD_ROLLOUTS * SHARD_ROLLOUTS
        pick = random.Random(0)
        figures |= {
            "list_p95_seconds": p95(lambda: served.call("run.list", count=50), times),
            "first_page_p95_seconds": p95(
                lambda: served.call("rollout.list", run="many-1", count=100), times
            ),
            "any_page_p95_seconds": p95(
                lambda: served.call(
                    "rollout.list", run="many-1", count=100, start=pick.randrange(last - 100)
                ),
                times,
            ),
            "step_page_p95_seconds": p95(
                lambda: served.call(
                    "rollout.list", run="many-1", count=100, first_step=pick.randrange(last // 1024)
                ),
                times,
            ),
            "search_p95_seconds": p95(
                lambda: served.call("rollout.list", run="many-1", count=10, text="00033-0007"), 3
            ),
            "large_rollout_p95_seconds": p95(
                lambda: served.call("rollout.show", run="large-1", rollout=name), times
            ),
        }
        print(json.dumps(figures), file=sys.stderr, flush=True)
        # Created last, as a run of this process: listing runs fails a run whose process is gone.
        live = make_run(runs, "live-1")
        append_event(live, "started", author="worker", pid=os.getpid(), host=socket.gethostname())
        write_json(live.heartbeat, {"format": 1, "step": 0, "steps": 100})
        figures |= measure_live(served, live, 1 if quick else 7, 5.0)
        served.end()
    return {
        name: round(each, 4) if isinstance(each, float) else each for name, each in figures.items()
    }


def main() -> int:
    """Print the figures; return 1 if one misses its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    figures = measure(*((5_000, 200_000) if quick else (100_000, 10_000_000)), quick=quick)
    slack = 3.0 if quick else 1.0
    pages = ("list", "first_page", "any_page", "step_page", "live")
    checks = [figures[f"{each}_p95_seconds"] <= PAGE_BAR * slack for each in pages]
    checks += [
        figures["large_rollout_p95_seconds"] <= LARGE_BAR * slack,
        figures["server_core_share"] <= CPU_BAR * slack,
        figures["step_ratio"] <= 1 + STEP_BAR * slack,
    ]
    print(json.dumps({**figures, "ok": all(checks)}))
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
