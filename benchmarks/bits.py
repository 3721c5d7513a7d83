"""Compares the bits of small runs: final weights, logged rollouts and metrics.

    python benchmarks/bits.py --record FILE [--source DIR] [--keep DIR]
    python benchmarks/bits.py --against FILE [--source DIR] [--only NAME…]

`--record` executes the runs of `bits_runs.py` and writes their digests. `--against` executes them
again and names each run and each part of it whose bits differ, with the first record that does.
`--source` is the checkout whose `src` is executed, so that another version of the code can be
recorded with the same runs. With `--keep`, the folders of the recorded runs stay, and a difference
shows both values.

Equal are: the tensors of every checkpoint, by name, type, shape and bytes; every record of the
rollout logs, in the order of writing; every row of the metrics without times; and what a run has
returned. A step that was repeated after a kill counts as it is in the log: once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "benchmarks" / "bits_runs.py"
# What depends on the clock, and the number of the attempt, which depends on kills.
CLOCKED = re.compile(r"(^|[_/])(seconds|time|memory|attempt)($|[_/])|per_second")
Parts = dict[str, list[str]]


def names() -> list[str]:
    return re.findall(r"^@run\ndef (\w+)", RUNS.read_text(), re.MULTILINE)


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def tensors(path: Path) -> list[str]:
    """Name, type, shape and digest of each tensor in a safetensors file, by name."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    found = []
    for name, about in sorted(header.items()):
        first, last = about["data_offsets"]
        bytes_of = digest(data[start + first : start + last])
        found.append(f"{name} {about['dtype']} {about['shape']} {bytes_of}")
    return found


def without_clock(value: Any) -> Any:
    """The value without what depends on the clock or on where the run's folder is."""
    if isinstance(value, str) and value.startswith("/"):
        return re.sub(r"^/.*?(?=/runs/)", "", value)
    if isinstance(value, dict):
        return {
            name: without_clock(inner)
            for name, inner in sorted(value.items())
            if not CLOCKED.search(name)
        }
    return [without_clock(inner) for inner in value] if isinstance(value, list) else value


def metrics(path: Path) -> list[str]:
    """The rows of the metrics; of rows that a later attempt repeated, the last."""
    rows: dict[str, str] = {}
    for line in path.read_text().splitlines():
        row = without_clock(json.loads(line))
        kind = "validation" if any(name.startswith("validation/") for name in row) else "step"
        rows[f"{kind} {row.get('step'):>6}"] = json.dumps(row)
    return [rows[name] for name in sorted(rows)]


def parts_of(place: Path) -> Parts:
    """The parts of a run with the lines that are compared."""
    parts: Parts = {}
    for path in sorted(place.rglob("*.safetensors")):
        if path.parent.parent.name == "checkpoints":
            parts[f"weights {named(path.parent, place)}/{path.name}"] = tensors(path)
    for path in sorted(place.rglob("rollouts/**/*.jsonl")):
        lines = path.read_text().splitlines()
        parts[f"rollouts {named(path, place)}"] = [
            json.dumps(without_clock(json.loads(line))) for line in lines
        ]
    for path in sorted(place.rglob("metrics.jsonl")):
        parts[f"metrics {named(path.parent, place)}"] = metrics(path)
    for path in sorted(place.glob("*.json")):
        parts[f"returned {path.stem}"] = [path.read_text()]
    return parts


def named(path: Path, place: Path) -> str:
    """The path within the run, without the parts of a run's id that depend on time and chance."""
    inner = path.relative_to(place).as_posix().removeprefix("runs/")
    return re.sub(r"^([a-z_-]+)-\d{8}-\d{6}-[0-9a-f]+(?=/|$)", r"\1", inner)


def execute(source: Path, place: Path, wanted: list[str]) -> bool:
    """Execute the runs in one process and its forks, with this source."""
    environment = {
        **os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    command = [sys.executable, str(RUNS), str(place), *wanted]
    return subprocess.run(command, env=environment, cwd=place, check=False).returncode == 0


def differences(before: Parts, after: Parts) -> Iterator[tuple[str, int | None]]:
    """Each part that differs, with the number of its first line that does."""
    for part in sorted(before.keys() | after.keys()):
        ours, theirs = before.get(part), after.get(part)
        if ours == theirs:
            continue
        if ours is None or theirs is None:
            yield part + (" is new" if ours is None else " is missing"), None
            continue
        pairs = zip(ours, theirs, strict=False)
        equal = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
        yield part, min(len(ours), len(theirs)) if equal is None else equal


def first_difference(one: Any, other: Any, path: str = "") -> str:
    """Where two values first differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            if one.get(name) != other.get(name):
                return first_difference(one.get(name), other.get(name), f"{path}.{name}")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            if left != right:
                return first_difference(left, right, f"{path}[{number}]")
    return f"{path or 'all'}: {json.dumps(one)[:300]} → {json.dumps(other)[:300]}"


def shown(lines: list[str] | None, number: int | None) -> Any:
    if lines is None or number is None or number >= len(lines):
        return None
    try:
        return json.loads(lines[number])
    except json.JSONDecodeError:
        return lines[number]


def compare(recorded: dict[str, Any], place: Path, ran: list[str]) -> dict[str, list[str]]:
    """What differs, by run."""
    kept = Path(recorded["kept"]) if recorded["kept"] else None
    found: dict[str, list[str]] = {}
    for name in ran:
        now = parts_of(place / name)
        after = {part: [digest(line.encode()) for line in lines] for part, lines in now.items()}
        then = parts_of(kept / name) if kept and (kept / name).is_dir() else {}
        for part, number in differences(recorded["runs"].get(name, {}), after):
            line = part if number is None else f"{part}, record {number}"
            if number is not None and part in then:
                values = shown(then[part], number), shown(now[part], number)
                line += f": {first_difference(*values)}"
            found.setdefault(name, []).append(line)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    doing = parser.add_mutually_exclusive_group(required=True)
    doing.add_argument("--record", type=Path, help="write the digests to this file")
    doing.add_argument("--against", type=Path, help="compare with the digests in this file")
    parser.add_argument("--source", type=Path, default=ROOT, help="the checkout to execute")
    parser.add_argument("--keep", type=Path, help="keep the folders of the runs here")
    parser.add_argument("--only", nargs="+", choices=names(), default=names(), metavar="NAME")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = given.keep or Path(temporary)
        if given.keep:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
        has_run = execute(given.source.resolve(), place.resolve(), given.only)
        result: dict[str, Any] = {"benchmark": "bits", "runs": len(given.only)}
        if given.record:
            digests = {
                name: {
                    part: [digest(line.encode()) for line in lines]
                    for part, lines in parts_of(place / name).items()
                }
                for name in given.only
            }
            kept = str(given.keep.resolve()) if given.keep else ""
            given.record.write_text(json.dumps({"kept": kept, "runs": digests}))
            result["parts"] = sum(len(parts) for parts in digests.values())
            result["ok"] = has_run and all(digests.values())
        else:
            different = compare(json.loads(given.against.read_text()), place, given.only)
            for name, lines in different.items():
                print("\n".join(f"{name}: {line}" for line in lines))
            result |= {"different": sorted(different), "ok": has_run and not different}
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
