"""Compares a call in the sandbox with bare bubblewrap and with a bare subprocess.

    python benchmarks/sandbox.py [--quick]

Runs `true` alternately in our sandbox (with its limits, its user, its system call filter, its
control group and the wait until every process has ended), with bare bubblewrap
(`bwrap --unshare-all --die-with-parent --ro-bind / / … true`), and in a bare subprocess, at 1, 16
and 64 at once. Bar: a call takes at most 1.5 times as long as with bare bubblewrap, at each width
(`--quick`, as in CI: 2).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sparring.sandbox import Sandbox, probe

BAR = 1.5
QUICK_BAR = 2.0  # for a few rounds on a busy machine
BARE = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/"]
BARE += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "true"]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    quick = options.parse_args().quick
    support = probe()
    if not support.works:  # there is nothing to measure
        print(
            json.dumps(
                {
                    "benchmark": "sandbox",
                    "skipped": support.why_not,
                    "ok": True,
                }
            )
        )
        return 0
    widths = {str(width): time_calls(width, 7 if quick else 25) for width in (1, 16, 64)}
    bar = QUICK_BAR if quick else BAR
    worst = max(figures["ratio"] for figures in widths.values())
    shown = {
        "benchmark": "sandbox", "user": support.user, "limits": support.memory,
        "start_ms": start_cost(), "at_once": widths, "bar": bar, "ok": worst <= bar,
    }  # fmt: skip
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def time_calls(width: int, rounds: int) -> dict[str, float]:
    """Return the median milliseconds per call, with this many calls of the same kind at once."""
    sandboxes = [Sandbox() for _ in range(width)]
    kinds: dict[str, Callable[[int], None]] = {
        "ours": lambda n: _fine(sandboxes[n].run(["true"]).exit_code),
        "bwrap": lambda _: _fine(_run(BARE)),
        "subprocess": lambda _: _fine(_run(["true"])),
    }
    seen: dict[str, list[float]] = {name: [] for name in kinds}
    with ThreadPoolExecutor(width) as pool:
        list(pool.map(kinds["bwrap"], range(width)))
        for _ in range(rounds * (4 if width == 1 else 1)):
            for name, call in kinds.items():
                started = time.perf_counter()
                list(pool.map(call, range(width)))
                seen[name].append((time.perf_counter() - started) * 1000 / width)
    for sandbox in sandboxes:
        sandbox.close()
    medians = {name: round(statistics.median(each), 2) for name, each in seen.items()}
    ratio = round(medians["ours"] / medians["bwrap"], 3)
    print(f"{width:>3} at once, ms a call: {medians}, ratio {ratio}", flush=True)
    return {**{f"{name}_ms": value for name, value in medians.items()}, "ratio": ratio}


def start_cost() -> float:
    """Return the milliseconds to create and remove a sandbox."""
    seen = []
    for _ in range(50):
        started = time.perf_counter()
        Sandbox().close()
        seen.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(seen), 3)


def _run(command: list[str]) -> int:
    return subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True).returncode  # fmt: skip


def _fine(code: int) -> None:
    assert code == 0, code


if __name__ == "__main__":
    sys.exit(main())
