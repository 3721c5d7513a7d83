"""Measures how long each tool takes to answer an AI operator, and how long its answers are.

    python benchmarks/mcp_tools.py [--quick]

The official client talks to `sparring mcp` over standard input and output. The project has 10,000
ended runs, one run that trains throughout, others that are queued behind it, and a completed
training run with its proof. Bars: 300 ms at the 95th percentile for every tool except
`wait_for_run`, which waits, and `compare_runs`, which computes and is printed separately; answers
with the default detail have fewer than 4,000 characters. The first plan, which builds the index and
describes the environment, is also printed separately. `--quick` makes fewer calls, and allows three
times the bar.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from run_index import make_ended

BAR, QUICK_BAR, MOST_CHARACTERS = 0.300, 0.900, 4_000
RUNS = 10_000
COMPUTES = ("compare_runs",)
BELL = Path(__file__).parents[1] / "examples" / "bell"
PROJECT = """
[settings]
model = "tiny"
max_steps = 2
max_completion_length = 32
validation_cases = 4
save_steps = 1
save_total_limit = 2
[budget]
runs_at_once = 1
starts_per_day = 100_000
[operators]
may_set = ["max_steps", "save_steps"]
"""


class Timed:
    """A client that records how long each tool's calls take, and how long its answers are."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.took: dict[str, list[float]] = {}
        self.lengths: dict[str, int] = {}
        self.first: dict[str, float] = {}

    async def call(self, tool: str, **given: Any) -> dict[str, Any]:
        started = time.perf_counter()
        result = await self._client.call_tool(tool, given)
        self.took.setdefault(tool, []).append(time.perf_counter() - started)
        text = result.content[0].text
        if given.get("detail") != "full":
            self.lengths[tool] = max(self.lengths.get(tool, 0), len(text))
        if result.is_error:
            raise RuntimeError(f"{tool}: {text}")
        return dict(result.structured_content)

    def end_warm_up(self) -> None:
        """Move the first duration of each tool to `first`, and discard the others."""
        self.first = {tool: round(took[0], 3) for tool, took in self.took.items()}
        self.took.clear()

    async def wait_until_ended(self, run: str) -> None:
        since = 0
        while True:
            news = await self.call("wait_for_run", run=run, since=since)
            if news["has_ended"]:
                return
            since = news["cursor"]


async def drive(client: Timed, times: int) -> None:
    """Run a training with its proof, then call every tool repeatedly while another run trains."""
    first = await client.call("plan_run", environment="bell")
    done = await client.call("start_run", plan=first["plan"])
    await client.wait_until_ended(done["run"])
    await client.wait_until_ended(done["proof"])
    long = {"max_steps": 100_000, "save_steps": 1_000}
    plan = await client.call("plan_run", environment="bell", settings=long)
    busy = await client.call("start_run", plan=plan["plan"])
    page = await client.call("list_rollouts", run=done["run"])
    client.end_warm_up()  # the first calls build the index and describe the environment
    try:
        for number in range(times):
            await call_reading_tools(client, done, page["rollouts"][0]["id"], number)
        waiting = [await call_starting_tools(client, done, number) for number in range(times)]
        for runs in waiting:
            for run in runs:
                await client.call("stop_run", run=run)
        for run, *_ in waiting:
            await client.call("resume_run", run=run)
            await client.call("stop_run", run=run)
    finally:
        await client.call("stop_run", run=busy["run"])
        await client.wait_until_ended(busy["run"])


async def call_reading_tools(
    client: Timed, done: dict[str, Any], rollout: str, number: int
) -> None:
    await client.call("list_environments")
    await client.call("describe_environment", environment="bell")
    await client.call("show_config", environment="bell")
    await client.call("show_limits")
    await client.call("list_runs", count=50)
    await client.call("list_runs", states=["failed"], environment=f"environment-{number % 20}")
    await client.call("show_run", run=done["run"])
    await client.call("show_run", run="bell")
    await client.call("get_results", run=done["run"])
    await client.call("get_results", run=done["proof"])
    await client.call("list_rollouts", run=done["run"], start=number)
    await client.call("show_rollout", run=done["run"], rollout=rollout)
    await client.call("read_log", run=done["run"])
    await client.call("wait_for_run", run=done["run"])
    if number % 4 == 0:
        await client.call("compare_runs", runs=[done["run"], done["proof"]])


async def call_starting_tools(client: Timed, done: dict[str, Any], number: int) -> list[str]:
    plan = await client.call("plan_run", environment="bell", settings={"seed": number})
    plan = await client.call("revise_plan", plan=plan["plan"], field="temperature", value=0.9)
    started = await client.call("start_run", plan=plan["plan"])
    check = await client.call("check_environment", environment="bell")
    proof = await client.call("prove_run", run=done["run"])
    return [started["run"], check["run"], proof["run"]]


async def measure(place: Path, times: int) -> Timed:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "sparring", "mcp", "--project", str(place), "--as", "coach"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    async with Client(server) as client:
        timed = Timed(client)
        await drive(timed, times)
        return timed


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    is_quick = arguments.parse_args().quick
    # The last run may still write while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        shutil.copy(BELL / "bell.py", place)
        (place / "sparring.toml").write_text(PROJECT)
        (place / "runs").mkdir()
        make_ended(place / "runs", 0, RUNS)
        timed = asyncio.run(measure(place, 8 if is_quick else 40))
    p95 = {
        tool: round(sorted(took)[int(0.95 * len(took))], 4)
        for tool, took in sorted(timed.took.items())
        if tool != "wait_for_run"
    }
    bar = QUICK_BAR if is_quick else BAR
    slow = {tool: took for tool, took in p95.items() if took > bar and tool not in COMPUTES}
    long = {tool: most for tool, most in timed.lengths.items() if most >= MOST_CHARACTERS}
    shown = {
        "benchmark": "mcp_tools",
        "bars": {"p95": bar, "characters": MOST_CHARACTERS},
        "runs": RUNS,
        "p95": {tool: took for tool, took in p95.items() if tool not in COMPUTES},
        "first_plan": timed.first["plan_run"],
        "computes": {tool: p95[tool] for tool in COMPUTES},
        "most_characters": dict(sorted(timed.lengths.items())),
        "ok": not slow and not long,
    }
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
