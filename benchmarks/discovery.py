"""Measures how long it takes to list a project of 500 environment files without importing them.

    python benchmarks/discovery.py [--quick]

One file in ten does not parse; one in ten would write a file and print if it were imported. Bars:
2 s without a cache, 0.3 s with a cache, and none of the files is executed. `--quick` allows three
times the bars, for a machine with other load.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from sparring.projects.discovery import find_environments

COLD_BAR, WARM_BAR, QUICK_SLACK = 2.0, 0.3, 3
FILES = 500
SOURCE = Path(__file__).resolve().parents[1] / "examples" / "shop" / "shop.py"


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    slack = QUICK_SLACK if options.parse_args().quick else 1
    bars = {"cold": slack * COLD_BAR, "warm": slack * WARM_BAR}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        written = folder / "written"
        write_project(folder, written)
        cache = folder / ".sparring" / "cache.json"
        cold, found = timed(folder, cache)
        warm = sorted(timed(folder, cache)[0] for _ in range(5))[2]
        shown = {
            "benchmark": "discovery", "files": FILES, "environments": len(found.environments),
            "reported": len(found.problems), "cold_seconds": round(cold, 3),
            "warm_seconds": round(warm, 3), "ran": written.exists(),
            "bars": bars,
        }  # fmt: skip
    shown["ok"] = cold <= bars["cold"] and warm <= bars["warm"] and not shown["ran"]
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def write_project(folder: Path, written: Path) -> None:
    source = SOURCE.read_text()
    for number in range(FILES):
        text = source
        if number % 10 == 0:
            text = "def broken(:\n" + text
        elif number % 10 == 1:
            text = f"open({str(written)!r}, 'w').write('ran'); print('ran')\n" + text
        place = folder / f"part_{number % 20}" / f"shop_{number}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)


def timed(folder: Path, cache: Path):
    started = time.perf_counter()
    found = find_environments(folder, [folder], cache)
    return time.perf_counter() - started, found


if __name__ == "__main__":
    sys.exit(main())
