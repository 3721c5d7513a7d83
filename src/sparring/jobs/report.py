"""`python -m sparring.jobs.report RUN_FOLDER`: writes a run's report from its folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from sparring.contracts.errors import SparringError
from sparring.jobs.run_lock import report_event
from sparring.reports.document import Document
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec
from sparring.run_folder.files import write_text


def write_report(folder: RunFolder) -> Path:
    """Write HTML and Markdown beside the run's summary, and return the path of the HTML."""
    document = document_of(folder)
    write_text(folder.report, document.html())
    write_text(folder.report_text, document.markdown())
    return folder.report


def try_to_write_report(folder: RunFolder) -> None:
    """Write the report. A failure is reported as a warning and does not fail the run."""
    try:
        write_report(folder)
    except Exception as error:
        message = f"no report was written: {type(error).__name__}: {error}"
        report_event(folder, "warning", message=message)


def document_of(folder: RunFolder) -> Document:
    """Build the report of a run of any kind."""
    document: Document = report_module(read_run_spec(folder).kind).document(folder)
    return document


def report_module(kind: str) -> ModuleType:
    """Import and return the module with `document` and `comparable` of a kind of run."""
    return importlib.import_module(f"sparring.jobs.{kind}.report")


if __name__ == "__main__":
    try:
        print(write_report(RunFolder(Path(sys.argv[1]))))
    except SparringError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
