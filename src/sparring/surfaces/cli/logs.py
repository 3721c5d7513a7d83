"""`sparring run logs`."""

from __future__ import annotations

import codecs
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from sparring.contracts.errors import InvalidInput
from sparring.operations.operation import Caller
from sparring.operations.run_views import LogQuery, RunQuery
from sparring.operations.runs import run_logs as read_log
from sparring.operations.runs import run_status
from sparring.surfaces.cli.commands import AsJson, Reader
from sparring.surfaces.cli.page import print_json, printable


def run_logs(
    request: LogQuery,
    caller: Reader,
    as_json: AsJson,
    follow: Annotated[
        bool,
        typer.Option(
            "-f", "--follow", help="Print new lines as they are written, also after a restart."
        ),
    ] = False,
) -> None:
    """Print the end of a process's log."""
    if follow and as_json:
        raise InvalidInput("--follow prints text; leave out --follow or --json")
    found = read_log(request, caller)
    if as_json:
        print_json(found)
        return
    others = ", ".join(name for name in found.there_are if name != found.process)
    _print_dim(f"{found.path}" + (f" (also: {others})" if others else ""))
    print(printable(found.text), flush=True)
    if follow:
        same = {"run": found.run, "process": found.process, "lines": 1}
        with contextlib.suppress(KeyboardInterrupt):
            _follow_attempts(Path(found.path), request.model_copy(update=same), caller)


def _follow_attempts(path: Path, query: LogQuery, caller: Caller) -> None:
    """Print text as it is appended to a log, then follow the logs of later attempts until the run
    ends. If the query names an attempt, only the log of that attempt is followed."""
    newest, position = path, path.stat().st_size

    def is_over() -> bool:
        nonlocal newest
        has_ended = run_status(RunQuery(run=query.run), caller).state.has_ended
        with contextlib.suppress(InvalidInput):  # the new attempt has no such log yet
            newest = Path(read_log(query, caller).path)
        return has_ended or newest != path

    while True:
        _follow_file(path, position, is_over)
        if newest == path:
            return
        path, position = newest, 0
        _print_dim(str(path))


def _print_dim(line: str) -> None:
    Console(stderr=True).print(Text(line, style="dim"), soft_wrap=True)


def _follow_file(path: Path, position: int, is_over: Callable[[], bool]) -> None:
    """Print a file from a position, and text that is appended to it, until `is_over` returns True
    and all of it is printed."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with path.open("rb") as file:
        file.seek(position)
        while True:
            has_ended = is_over()  # before reading, or the last lines could be missed
            while block := file.read(1 << 16):
                sys.stdout.write(printable(decoder.decode(block)))
                sys.stdout.flush()
            if has_ended:
                return
            time.sleep(0.3)
