"""Reports of runs, and runs beside one another: written by a process that may load what it takes
to draw."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from typing import Annotated, Any

from pydantic import Field

from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.foreign import MIXED, SUMMARY
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.run_views import RunQuery
from sparring.run_folder.ids import new_run_id
from sparring.runs.finding import find_run

_SECONDS = 600.0


class Report(Frozen):
    run: str
    html: str
    markdown: str


class CompareRuns(Frozen):
    runs: tuple[str, ...] = Field(
        min_length=2, max_length=8, description="the others are held against the first"
    )


class Comparison(Frozen):
    runs: tuple[str, ...]
    settings: Annotated[tuple[tuple[str, tuple[Any, ...]], ...], MIXED]
    differences: Annotated[tuple[dict[str, Any], ...], SUMMARY]
    html: str = ""

    def short(self) -> Comparison:
        """Settings that both have, and have otherwise."""
        both = [each for each in self.settings if all(value is not None for value in each[1])]
        return self.model_copy(update={"settings": tuple(both)})


@operation("run.report", role=Role.OWNER, changes_state=False, forms=Forms(cli="run report"))
def report_run(request: RunQuery, caller: Caller) -> Report:
    """Write what there is to say of a run as one HTML file, and as Markdown."""
    folder = find_run(caller.runs, request.run)
    _worker("reporting", str(folder.path))
    return Report(run=folder.id, html=str(folder.report), markdown=str(folder.report_text))


@operation(
    "run.compare",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="run compare", tool="compare_runs"),
)
def compare_runs(request: CompareRuns, caller: Caller) -> Comparison:
    """Hold runs against the first of them: settings, curves, the difference paired by case.

    Cases that flipped are shown to the owner only.
    """
    folders = [find_run(caller.runs, run) for run in request.runs]
    if len({folder.id for folder in folders}) < len(folders):
        raise InvalidInput(f"the same run twice: {', '.join(folder.id for folder in folders)}")
    is_owner = caller.is_owner
    name = new_run_id("comparison", time.time(), secrets.token_hex(2))
    place = caller.runs / ".sparring" / "reports" / f"{name}.html"
    told = _worker(
        "comparing", str(place) if is_owner else "", *(str(folder.path) for folder in folders)
    )
    found = json.loads(told)
    if not is_owner:
        for each in found["differences"]:
            each["flips"] = []
    return Comparison(
        runs=found["runs"],
        settings=found["settings"],
        differences=found["differences"],
        html=str(place) if is_owner else "",
    )


def _worker(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"sparring.worker.{module}", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise SparringError(f"{module}: {last}")
    return done.stdout.strip().splitlines()[-1]
