"""Measures how much of each module its own test covers: tests/a/test_b.py for src/sparring/a/b.py.

    python benchmarks/mirrored_tests.py [--long] [FOLDER ...]

Runs the fast tests in these files (in all folders of tests/, or in those named) once under
coverage, which records the test that executed each line. A line of a module counts as covered if
the module's own test file executes it, or if it runs outside of tests, as at import. Bar: at most
10 % of the modules lack a test of their own that covers at least 70 % of their lines. Lines that
only slow tests or child processes execute do not count. With `--long`, modules of up to 100 lines
are left out, and the bar is that none lacks such a test.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "sparring"
MOST_WITHOUT, LEAST_COVERED = 0.10, 0.70
SHORT = 100  # lines


def mirrored(*, above_lines: int) -> dict[Path, Path]:
    """Return each module of more lines with the path of its own test file, which may not exist."""
    modules = [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
        and len(path.read_text().splitlines()) > above_lines
    ]
    return {
        path: ROOT / "tests" / path.relative_to(SOURCE).parent / f"test_{path.name}"
        for path in modules
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="only modules over 100 lines")
    parser.add_argument("folders", nargs="*", help="folders of tests/; default: all")
    given = parser.parse_args()
    most_without = 0.0 if given.long else MOST_WITHOUT
    pairs = {
        module: test
        for module, test in mirrored(above_lines=SHORT if given.long else 0).items()
        if not given.folders or module.relative_to(SOURCE).parts[0] in given.folders
    }
    tests = [str(test) for test in pairs.values() if test.exists()]
    with tempfile.TemporaryDirectory() as folder:
        settings, data = Path(folder) / "coveragerc", Path(folder) / "coverage"
        settings.write_text(
            f"[run]\ndynamic_context = test_function\nsource = {SOURCE}\ndata_file = {data}\n"
        )
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
        done = subprocess.run([*command, "-q", *tests], cwd=ROOT, check=False, stdout=sys.stderr)
        measured = coverage.Coverage(data_file=str(data), config_file=str(settings))
        measured.load()
        shares = {
            str(module.relative_to(SOURCE)): share(measured, module, test)
            for module, test in pairs.items()
            if str(test) in tests
        }
    without = [str(path.relative_to(SOURCE)) for path, test in pairs.items() if not test.exists()]
    below = {name: round(each, 2) for name, each in shares.items() if each < LEAST_COVERED}
    lacking = len(without) + len(below)
    is_ok = done.returncode == 0 and lacking <= most_without * len(pairs)
    shown = {
        "benchmark": "mirrored_tests",
        "modules": len(pairs),
        "measured": len(shares),
        "without_a_test": without,
        "below_bar": below,
        "lacking": round(lacking / len(pairs), 3),
        "bar": {"without": most_without, "covered": LEAST_COVERED},
        "ok": is_ok,
    }
    print(json.dumps(shown))
    return 0 if is_ok else 1


def share(measured: coverage.Coverage, module: Path, test: Path) -> float:
    """Return the share of a module's lines that its own test covers."""
    _, statements, _, _, _ = measured.analysis2(str(module))
    own = ".".join(test.relative_to(ROOT).with_suffix("").parts)
    by_line = measured.get_data().contexts_by_lineno(str(module))
    covered = [
        line
        for line in statements
        if any(not each or each.startswith(f"{own}.") for each in by_line.get(line, ()))
    ]
    return len(covered) / max(1, len(statements))


if __name__ == "__main__":
    raise SystemExit(main())
