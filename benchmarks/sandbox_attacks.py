"""Runs every attack on the sandbox as the current user and, if that is root, as an ordinary user.

    python benchmarks/sandbox_attacks.py [--table]

Bars: every attack is contained and leaves nothing behind, none connects to the host, and the call
after an attack takes at most 1.5 times as long as after a harmless program. `--table` prints the
table of docs/sandbox.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.sandbox.attacks import run_all
from tests.sandbox.test_attacks import as_an_ordinary_user

SLOWER_BAR = 1.5


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--table", action="store_true")
    with_table = options.parse_args().table
    results = [run_all()]
    if os.geteuid() == 0:
        results.append(as_an_ordinary_user())
    if with_table:
        print_table(results)
    shown = {
        "benchmark": "sandbox_attacks",
        "runs": [{name: each[name] for name in each if name != "outcomes"} for each in results],
        "bar_slower": SLOWER_BAR,
    }
    shown["ok"] = all(
        each["attempts"] == each["contained"]
        and not each["connections"]
        and each["call_ms_after"] <= SLOWER_BAR * each["call_ms_before"]
        for each in results
    )
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def print_table(results: list) -> None:
    heads = " | ".join(f"as {each['as']}" for each in results)
    print(f"| aim | attempt | {heads} |\n|---|---|{'---|' * len(results)}")
    for rows in zip(*(each["outcomes"] for each in results), strict=True):
        cells = " | ".join(
            ("" if row["contained"] else "**not contained**: ") + row["how"] for row in rows
        )
        print(f"| {rows[0]['aim']} | {rows[0]['name']} | {cells} |")


if __name__ == "__main__":
    sys.exit(main())
