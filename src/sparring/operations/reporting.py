"""Operations that report on a run and compare runs. A child process computes the comparison."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from typing import Annotated, Any

from pydantic import Field, field_validator

from sparring.contracts.command_line import RUN
from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.foreign import MIXED, SUMMARY
from sparring.contracts.json import JsonObject
from sparring.contracts.kinds import run_kind
from sparring.contracts.specs import Frozen
from sparring.contracts.summaries import ProveSummary
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.proof_card import proof_card
from sparring.operations.report_page import comparison_report, run_report
from sparring.operations.run_views import RunQuery
from sparring.run_folder.contents import find_summary, read_summary
from sparring.run_folder.files import write_text
from sparring.run_folder.layout import new_run_id
from sparring.runs.finding import find_run

_TIMEOUT_SECONDS = 600.0


class Report(Frozen):
    """The files of a report."""

    run: str
    html: str
    markdown: str = Field(default="", description="the card of a proof")


class CompareRuns(Frozen):
    """The runs to compare."""

    runs: Annotated[tuple[str, ...], RUN] = Field(
        min_length=2, max_length=8, description="two to eight runs; each is compared with the first"
    )

    @field_validator("runs", mode="before")
    @classmethod
    def _are_several(cls, runs: Any) -> Any:
        if isinstance(runs, list | tuple) and len(runs) < 2:
            named = f"you named only {runs[0]}" if runs else "you named none"
            raise ValueError(f"name at least two runs to compare; {named}")
        return runs


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
    """Write the report of a run: its web view in one HTML file; of a proof also a Markdown card."""
    folder = find_run(caller.runs, request.run)
    kind = run_kind(str(folder.read_spec().get("kind")), folder.spec)
    if not kind.has_metrics:  # a training can be looked at while it runs
        read_summary(folder, kind.summary)
    write_text(folder.report, run_report(folder, caller))
    proof = find_summary(folder, ProveSummary)
    if proof is not None:
        write_text(folder.card, proof_card(proof))
    return Report(
        run=folder.id, html=str(folder.report), markdown=str(folder.card) if proof else ""
    )


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
    found = Comparison.model_validate(_computed([str(folder.path) for folder in folders]))
    if not caller.is_owner:
        hidden = tuple({**difference, "flips": []} for difference in found.differences)
        return found.model_copy(update={"differences": hidden})
    name = new_run_id("comparison", time.time(), secrets.token_hex(2))
    path = caller.runs / ".sparring" / "reports" / f"{name}.html"
    write_text(path, comparison_report(found.runs, found.model_dump(mode="json"), caller))
    return found.model_copy(update={"html": str(path)})


def _computed(folders: list[str]) -> JsonObject:
    """Compare the runs in these folders in a child process, which may import numpy and scipy."""
    module = "comparison"
    try:
        process = subprocess.run(
            [sys.executable, "-m", f"sparring.jobs.{module}", *folders],
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
    found: JsonObject = json.loads(output[-1])
    found.pop("format")
    return found
