"""Operations that report on a run and compare runs, in a child process that draws the pictures."""

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
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.run_views import RunQuery
from sparring.run_folder.ids import new_run_id
from sparring.runs.finding import find_run

_TIMEOUT_SECONDS = 600.0


class Report(Frozen):
    """The files of a report."""

    run: str
    html: str
    markdown: str


class CompareRuns(Frozen):
    """The runs to compare."""

    runs: tuple[str, ...] = Field(
        min_length=2, max_length=8, description="two to eight runs; each is compared with the first"
    )


class Comparison(Frozen):
    """The settings and results that differ between runs."""

    runs: tuple[str, ...]
    settings: Annotated[tuple[tuple[str, tuple[Any, ...]], ...], MIXED]
    differences: Annotated[tuple[JsonObject, ...], SUMMARY]
    html: str = ""

    def short(self) -> Comparison:
        """Return a copy without the settings that one of the runs lacks."""
        common = [each for each in self.settings if all(value is not None for value in each[1])]
        return self.model_copy(update={"settings": tuple(common)})


@operation("run.report", role=Role.OWNER, changes_state=False, forms=Forms(cli="run report"))
def report_run(request: RunQuery, caller: Caller) -> Report:
    """Write the report of a run, as one HTML file and as Markdown."""
    folder = find_run(caller.runs, request.run)
    _run_job("report", str(folder.path))
    return Report(run=folder.id, html=str(folder.report), markdown=str(folder.report_text))


@operation(
    "run.compare",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="run compare", tool="compare_runs"),
)
def compare_runs(request: CompareRuns, caller: Caller) -> Comparison:
    """Compare runs with the first run: settings, curves, and differences paired by case.

    Cases whose outcome differs are shown only to the owner.
    """
    folders = [find_run(caller.runs, run) for run in request.runs]
    if len({folder.id for folder in folders}) < len(folders):
        raise InvalidInput(f"name each run once: {', '.join(folder.id for folder in folders)}")
    is_owner = caller.is_owner
    name = new_run_id("comparison", time.time(), secrets.token_hex(2))
    path = caller.runs / ".sparring" / "reports" / f"{name}.html"
    output = _run_job(
        "comparison", str(path) if is_owner else "", *(str(folder.path) for folder in folders)
    )
    found = json.loads(output)
    if not is_owner:
        for difference in found["differences"]:
            difference["flips"] = []
    return Comparison(
        runs=found["runs"],
        settings=found["settings"],
        differences=found["differences"],
        html=str(path) if is_owner else "",
    )


def _run_job(module: str, *arguments: str) -> str:
    try:
        process = subprocess.run(
            [sys.executable, "-m", f"sparring.jobs.{module}", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SparringError(f"{module}: not finished within {_TIMEOUT_SECONDS:g} s") from error
    output = process.stdout.strip().splitlines()
    if process.returncode or not output:
        last_line = (process.stderr.strip().splitlines() or ["it failed without a message"])[-1]
        raise SparringError(f"{module}: {last_line}")
    return output[-1]
