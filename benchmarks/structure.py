"""Counts what a reader has to learn: code, names, mechanisms, and the way through them.

    python benchmarks/structure.py [--static] [--source DIR]

`--static` reads the source and the declarations of commands and settings only; it takes seconds
and needs no torch. Otherwise, `structure_paths.py` also executes the quickstart and follows a
setting from the request to the first step, each in a process of its own. `--source` counts another
checkout. A figure above its bar fails.

- `code_lines`: lines of `src` without blank lines, comments and docstrings.
- `shared_class_names`: names of public classes that two or more modules define.
- `untyped_mappings`: occurrences of `dict[str, Any]` and `Mapping[str, Any]`.
- `works_constructed`: places that make the work of a training, `TrainWork(…)`.
- `started_reported`: places that report that a run's process has started.
- `retired_names`: names of mechanisms that another one has replaced.
- `trainer_bases`: base classes of the trainer besides TRL's.
- `commands`, `settings`: commands of the command line; settings of training and supervision.
- `quickstart_files`: files of `src` of which the quickstart executes a function.
- `frames_to_draw`: functions of `src` that are entered and not finished when a training draws its
  first token.
- `request_to_run`, `spec_to_training`: files that receive a setting.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BARS = {
    "code_lines": 43_670,
    "shared_class_names": 4,
    "untyped_mappings": 210,
    "works_constructed": 1,
    "started_reported": 1,
    "retired_names": 0,
    "trainer_bases": 0,
    "commands": 44,
    "settings": 56,
    "quickstart_files": 84,
    "frames_to_draw": 20,
    "request_to_run": 11,
    "spec_to_training": 22,
}
RETIRED = (
    "GrowingRow", "find_continued_row", "_GivenEnvironment", "CheckpointTrainer", "PassTrainer",
)  # fmt: skip
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def shared_class_names(trees: dict[str, ast.Module]) -> list[str]:
    modules = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(path)
    return sorted(name for name, paths in modules.items() if len(paths) > 1)


def places_that_call(trees: dict[str, ast.Module], function: str) -> list[str]:
    return [
        f"{path}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and last_name(node.func) == function
    ]


def last_name(node: ast.AST) -> str:
    """The name, or the last part of a dotted one."""
    return getattr(node, "id", "") or getattr(node, "attr", "")


def bases_of_the_trainer(trees: dict[str, ast.Module]) -> list[str]:
    """The bases of the trainer, and of each of those that is ours, besides TRL's trainer."""
    classes = {
        node.name: [last_name(base) for base in node.bases]
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }

    def above(name: str) -> Iterator[str]:
        for base in classes.get(name, []):
            yield base
            yield from above(base)

    return sorted({base for base in above("PolicyTrainer") if base != "GRPOTrainer"})


def static_counts(source: Path) -> dict[str, Any]:
    """Return what the source says: counts, and lists of what is counted."""
    texts = {
        str(path.relative_to(source)): path.read_text() for path in sorted(source.rglob("*.py"))
    }
    trees = {path: ast.parse(text) for path, text in texts.items()}
    everything = "\n".join(texts.values())
    words = set(re.findall(r"\w+", everything))
    return {
        "code_lines": sum(code_lines(texts[path], trees[path]) for path in texts),
        "shared_class_names": shared_class_names(trees),
        "untyped_mappings": len(re.findall(r"(?:dict|Mapping)\[str, Any\]", everything)),
        "works_constructed": places_that_call(trees, "TrainWork"),
        "started_reported": len(re.findall(r'"started",\s*pid=', everything)),
        "retired_names": [name for name in RETIRED if name in words],
        "trainer_bases": bases_of_the_trainer(trees),
    }


def in_own_process(program: str, source: Path, *arguments: str) -> Any:
    """Return the JSON value that a program prints as its last line, with this source."""
    environment = {**os.environ, "PYTHONPATH": str(source.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *program.split(), *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{program} {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def number(value: Any) -> int:
    return value if isinstance(value, int) else len(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--static", action="store_true", help="execute no training")
    parser.add_argument("--source", type=Path, default=ROOT, help="the checkout to count")
    given = parser.parse_args()
    source = given.source.resolve() / "src" / "sparring"
    paths = str(ROOT / "benchmarks" / "structure_paths.py")
    found = static_counts(source)
    found |= in_own_process(paths, source, "declared")
    if not given.static:
        found |= in_own_process(paths, source, "quickstart")
        found |= in_own_process(paths, source, "setting")
    counts = {name: number(value) for name, value in found.items()}
    above = {name: counts[name] for name in BARS if counts.get(name, 0) > BARS[name]}
    shown = {
        "benchmark": "structure",
        "counts": counts,
        "bars": {name: bar for name, bar in BARS.items() if name in counts},
        "above": above,
        "lists": {name: value for name, value in found.items() if isinstance(value, list)},
        "ok": not above,
    }
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
