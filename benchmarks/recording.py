"""Draws the picture of a terminal in README.md: the output of `sparring train`.

    python benchmarks/recording.py FILE.svg [--project FOLDER --run RUN] [--start NAME]

Draws a training run that has ended, with its proof, from its log and its results. Without a run, it
first trains one in an empty folder, as a new user does, with SmolLM2-135M.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
WIDTH = 132
SHOWN = ("step ", "validation at")


def sparring(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def draw(folder: Path, run: str) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.assemble(("$ ", "dim"), ("sparring train my_agent", "bold")))
    log = folder / "runs" / run / "logs" / "attempt-1" / "worker.log"
    for line in log.read_text().splitlines():
        if line.startswith(SHOWN):
            console.print(Text(line, style="dim"), soft_wrap=True)
    console.print(Text.from_ansi(sparring(folder, "run", "watch", run).strip("\n")), soft_wrap=True)
    svg = console.export_svg(title="sparring")
    # Without web fonts, the picture loads nothing from the network.
    return re.sub(r"@font-face \{.*?\}\s*(?=@font-face|\.)", "", svg, flags=re.DOTALL)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("file", type=Path)
    options.add_argument("--project", type=Path)
    options.add_argument("--run")
    options.add_argument("--start", default="documents")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.project or Path(temporary)
        if not given.run:
            sparring(folder, "init", "my_agent", "--from", given.start)
            sparring(folder, "train", "my_agent")
        ids = [each.parent.name for each in sorted(folder.glob("runs/my-agent*/spec.json"))]
        run = given.run or ids[-1]
        given.file.parent.mkdir(parents=True, exist_ok=True)
        given.file.write_text(draw(folder, run))
    print(json.dumps({"benchmark": "recording", "run": run, "ok": True}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
