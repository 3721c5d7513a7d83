"""Every attempt to get out of the sandbox, as whoever runs this and as an ordinary user.

    python benchmarks/sandbox_attacks.py [--table]

Bars: every attempt is contained, nothing is left, and the next call takes no longer than after a
harmless program (at most half as long again). `--table` prints the table of docs/sandbox.md.
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
    told = [run_all()]
    if os.geteuid() == 0:
        told.append(as_an_ordinary_user())
    if with_table:
        print_table(told)
    shown = {
        "benchmark": "sandbox_attacks",
        "runs": [{name: each[name] for name in each if name != "outcomes"} for each in told],
        "bar_slower": SLOWER_BAR,
    }
    shown["ok"] = all(
        each["attempts"] == each["contained"]
        and not each["connections"]
        and each["call_ms_after"] <= SLOWER_BAR * each["call_ms_before"]
        for each in told
    )
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def print_table(told: list) -> None:
    heads = " | ".join(f"as {each['as']}" for each in told)
    print(f"| aim | attempt | {heads} |\n|---|---|{'---|' * len(told)}")
    for rows in zip(*(each["outcomes"] for each in told), strict=True):
        words = " | ".join(
            ("" if row["contained"] else "**not contained**: ") + row["how"] for row in rows
        )
        print(f"| {rows[0]['aim']} | {rows[0]['name']} | {words} |")


if __name__ == "__main__":
    sys.exit(main())
