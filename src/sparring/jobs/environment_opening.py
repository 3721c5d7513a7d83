"""Opens an environment for a run: loads its file, requires its sandbox, starts its services."""

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
from sparring.contracts.specs import EvalSpec, PlaySettings, RunSpec
from sparring.contracts.training import TrainSpec
from sparring.environments import Environment, load_environment
from sparring.jobs.case_loader import log_descriptor
from sparring.jobs.worker import report_event, supervised_attempt
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, write_json
from sparring.run_folder.layout import CASES
from sparring.sandbox import probe
from sparring.services import running

_WAIT_FOR_RANK_0_SECONDS = 600.0


@contextmanager
def opened(folder: RunFolder, spec: RunSpec, *, rank: int = 0) -> Iterator[Environment]:
    """Yield the environment that a run's spec names, with its services running.

    Services that the run's supervisor has started are reused. Rank 0 starts the missing ones and
    writes their addresses to the run's folder, where the other ranks read them.
    """
    environment = _load_logged(folder, spec.target, spec.config)
    environment.is_unsandboxed = spec.play_settings.unsandboxed
    if environment.needs_sandbox and not environment.is_unsandboxed:
        probe().require()
    if environment.needs_sandbox and environment.is_unsandboxed and rank == 0:
        message = "code that the model wrote runs without a sandbox (unsandboxed=true)"
        report_event(folder, "warning", message=message)
    if not environment.services:
        yield environment
        return
    if isinstance(spec, TrainSpec) and spec.nodes > 1:
        raise InvalidInput(
            "the services of an environment run on the host of rank 0, where other hosts cannot "
            "reach them; train on one host, or start the services yourself"
        )
    attempt = supervised_attempt() or max(1, folder.attempts())
    names = {service.name for service in environment.services}
    existing = _read_addresses(folder, attempt) if supervised_attempt() is not None else {}
    missing = [service for service in environment.services if service.name not in existing]
    if rank != 0 and missing:
        existing, missing = _wait_for_addresses(folder, attempt, names), []
    source_folder = Path(spec.target.rpartition(":")[0] or spec.target).resolve().parent
    with running(missing, lambda name: folder.log(attempt, name), source_folder) as started:
        addresses = {**existing, **started}
        if missing:
            write_json(folder.services, {"format": 1, "attempt": attempt, "addresses": addresses})
        environment.add_addresses(addresses)
        yield environment


def _load_logged(folder: RunFolder, target: str, config: Mapping[str, Any]) -> Environment:
    """Load the environment. In a supervised run, output of its code goes to the log of the case
    loader, because it may quote cases."""
    attempt = supervised_attempt()
    if attempt is None:
        return load_environment(target, config)
    sys.stdout.flush()
    sys.stderr.flush()
    with log_descriptor(folder.log(attempt, CASES)) as log, ExitStack() as stack:
        for number in (1, 2):
            original = os.dup(number)
            stack.callback(os.close, original)
            stack.callback(os.dup2, original, number)
            os.dup2(log, number)
        try:
            return load_environment(target, config)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()


@contextmanager
def opened_without_run(
    target: str, config: Mapping[str, Any], *, is_unsandboxed: bool
) -> Iterator[Environment]:
    """Yield the environment outside of any run; a temporary folder replaces the run's folder."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder(Path(scratch) / "passing")
        folder.path.mkdir()
        play = PlaySettings(unsandboxed=is_unsandboxed)
        spec = EvalSpec(target=target, config=dict(config), play=play)
        with opened(folder, spec) as environment:
            yield environment


def _read_addresses(folder: RunFolder, attempt: int) -> dict[str, str]:
    """Return the addresses of the services that this attempt has already started."""
    if not folder.services.is_file():
        return {}
    content = read_json(folder.services)
    return dict(content["addresses"]) if content["attempt"] == attempt else {}


def _wait_for_addresses(folder: RunFolder, attempt: int, names: set[str]) -> dict[str, str]:
    """Wait until rank 0 has started all named services, and return their addresses."""
    deadline = time.monotonic() + _WAIT_FOR_RANK_0_SECONDS
    while time.monotonic() < deadline:
        if names <= set(addresses := _read_addresses(folder, attempt)):
            return addresses
        time.sleep(0.1)
    raise ServiceFailed(
        f"rank 0 has not started the services within {_WAIT_FOR_RANK_0_SECONDS:g} s; "
        "its log has the reason"
    )
