"""Opening an environment for a run: its file loaded, its sandbox there, its services up."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput, ServiceFailed
from sparring.environments import Environment, load_environment
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, write_json
from sparring.run_folder.layout import CASES
from sparring.sandbox import probe
from sparring.services import running
from sparring.worker.cases_apart import printing_into
from sparring.worker.holding import report_event, supervised_attempt

_WAIT_FOR_RANK_0_SECONDS = 600.0


@contextmanager
def opened(
    folder: RunFolder,
    target: str,
    config: Mapping[str, Any],
    *,
    is_unsandboxed: bool,
    rank: int = 0,
    has_one_host: bool = True,
) -> Iterator[Environment]:
    """The environment behind `target`, ready to be asked for its parts.

    Services that the run's supervisor has started are there already; rank 0 starts what is
    missing, and the other ranks are told.
    """
    environment = _loaded(folder, target, config)
    if environment.needs_sandbox and not is_unsandboxed:
        probe().require()
    environment.is_unsandboxed = is_unsandboxed
    if environment.needs_sandbox and is_unsandboxed and rank == 0:
        message = "code that the model wrote runs without a sandbox (unsandboxed=true)"
        report_event(folder, "warning", message=message)
    if not environment.services:
        yield environment
        return
    if not has_one_host:
        raise InvalidInput(
            "services of an environment run on the host of its first process, where the others "
            "cannot reach them; train on one host, or start the services yourself"
        )
    attempt = supervised_attempt() or folder.attempts()
    wanted = {service.name for service in environment.services}
    told = _told(folder, attempt) if supervised_attempt() is not None else {}
    missing = [service for service in environment.services if service.name not in told]
    if rank != 0 and missing:
        told, missing = _told_by_rank_0(folder, attempt, wanted), []
    place = Path(target.rpartition(":")[0] or target).resolve().parent
    with running(missing, lambda name: folder.log(attempt, name), place) as started:
        addresses = {**told, **started}
        if missing:
            write_json(folder.services, {"format": 1, "attempt": attempt, "addresses": addresses})
        environment.learn_addresses(addresses)
        yield environment


def _loaded(folder: RunFolder, target: str, config: Mapping[str, Any]) -> Environment:
    """What a file prints while it is loaded may be its cases: in a run, that goes to their log."""
    attempt = supervised_attempt()
    if attempt is None:
        return load_environment(target, config)
    sys.stdout.flush()
    sys.stderr.flush()
    with printing_into(folder.log(attempt, CASES)) as log, ExitStack() as stack:
        for number in (1, 2):
            kept = os.dup(number)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, number)
            os.dup2(log, number)
        try:
            return load_environment(target, config)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()


@contextmanager
def opened_in_passing(
    target: str, config: Mapping[str, Any], *, is_unsandboxed: bool
) -> Iterator[Environment]:
    """For a look at an environment that is no run: nothing of it is kept."""
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place) / "passing")
        folder.path.mkdir()
        with opened(folder, target, config, is_unsandboxed=is_unsandboxed) as environment:
            yield environment


def _told(folder: RunFolder, attempt: int) -> dict[str, str]:
    """Where those are that somebody has started already."""
    if not folder.services.is_file():
        return {}
    told = read_json(folder.services)
    return dict(told["addresses"]) if told["attempt"] == attempt else {}


def _told_by_rank_0(folder: RunFolder, attempt: int, wanted: set[str]) -> dict[str, str]:
    deadline = time.monotonic() + _WAIT_FOR_RANK_0_SECONDS
    while time.monotonic() < deadline:
        if wanted <= set(told := _told(folder, attempt)):
            return told
        time.sleep(0.1)
    raise ServiceFailed("the first process of the run has not started the services")
