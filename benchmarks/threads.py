"""What other work on the machine does to sampling, by number of threads and how they wait.

    python benchmarks/threads.py [--quick]

The same tokens of SmolLM2-135M are sampled in a process of its own for each line: with OpenMP's
default wait policy (threads spin), with the one that Sparring sets (threads sleep), and with one
thread; with nothing else running, and beside two processes that never pause. Bars: on a quiet
machine Sparring's choice takes at most 5 % more than the default (50 % in the short form, which a
shared machine can miss), beside the two it takes at most half of the default's time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

QUIET_BAR, BUSY_BAR = 1.05, 0.5
WAYS: dict[str, dict[str, str]] = {
    "default": {"OMP_WAIT_POLICY": "ACTIVE"},
    "sparring": {},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
BUSY = "while True: pass"


def sample(rows: int, tokens: int) -> float:
    """Seconds for `rows` prompts of `tokens` tokens each, the second time."""
    from sparring.cpu import share_machine

    share_machine()
    from array import array

    from sparring.contracts.policies import SampleKey, SampleRequest, Sampling
    from sparring.contracts.rollouts import RolloutKey
    from sparring.policies.generation import generate
    from sparring.policies.transformers_policy import TransformersPolicy

    policy = TransformersPolicy.load("smollm2")
    requests = [
        SampleRequest(
            SampleKey(RolloutKey(0, 0, str(row), 0), 0),
            array("i", range(1000, 1200)),
            Sampling(1.0, tokens),
        )
        for row in range(rows)
    ]
    for _ in range(2):
        started = time.monotonic()
        generate(policy.model, requests, frozenset())
    return time.monotonic() - started


def measured(way: dict[str, str], given: argparse.Namespace) -> float:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")}
    command = [sys.executable, __file__, "--sample", "--rows", str(given.rows)]
    done = subprocess.run(
        [*command, "--tokens", str(given.tokens)],
        env={**environment, **way},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def table(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """In rounds, one way after the other, so that what comes and goes hits all of them; the least
    of each, as whatever else runs only ever adds to it."""
    found: dict[str, dict[str, list[float]]] = {way: {"quiet": [], "busy": []} for way in WAYS}
    for state, others in (("quiet", 0), ("busy", os.cpu_count() or 2)):
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(others)]
        try:
            for _ in range(given.rounds):
                for name, way in WAYS.items():
                    found[name][state].append(measured(way, given))
        finally:
            for each in busy:
                each.kill()
                each.wait()
    return {
        name: {state: round(min(times), 2) for state, times in states.items()}
        for name, states in found.items()
    }


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    options.add_argument("--sample", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--rows", type=int, default=8)
    options.add_argument("--tokens", type=int, default=12)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    if given.sample:
        print(sample(given.rows, given.tokens))
        return 0
    if given.quick:
        given.rounds, given.tokens = 2, 8
    found = table(given)
    quiet = found["sparring"]["quiet"] / found["default"]["quiet"]
    busy = found["sparring"]["busy"] / found["default"]["busy"]
    bar = 1.5 if given.quick else QUIET_BAR
    shown = {
        "benchmark": "threads",
        "quick": given.quick,
        "seconds": found,
        "quiet_beside_default": round(quiet, 3),
        "busy_beside_default": round(busy, 3),
        "bar": {"quiet": bar, "busy": BUSY_BAR},
        "ok": quiet <= bar and busy <= BUSY_BAR,
    }
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
