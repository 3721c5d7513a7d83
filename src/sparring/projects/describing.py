"""Asking an environment what it says of itself, in a process that cannot reach this one.

The process gets no secrets, no network and a deadline; where bubblewrap works, it sees no other
process and can write nothing. Answers are kept by the content of the files behind them.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sparring.contracts.environments import EnvironmentDescription, FoundEnvironment
from sparring.run_folder.files import read_json, write_json
from sparring.sandbox.looking import looking_only

SECONDS = 60.0
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
_MOST = 4_000_000


def describe(
    found: FoundEnvironment,
    files: Iterable[Path],
    cache: Path | None = None,
    seconds: float = SECONDS,
    *,
    may_write: bool = False,
) -> EnvironmentDescription:
    """Its fields, defaults, measures; or its base fields and the error, where it fails."""
    digest = _digest(found, files)
    place = cache / f"{digest}.json" if cache is not None else None
    if place is not None and (known := _remembered(place)) is not None:
        return known
    told = _ask(found, seconds, looking_only)
    if may_write and "Errno 30" in told.error:  # it writes at import, and its owner asks
        told = _ask(found, seconds, list)
    if place is not None and not told.error:
        try:
            write_json(place, told.model_dump(mode="json"), durable=False)
        except OSError:
            return told
    return told


def _ask(
    found: FoundEnvironment, seconds: float, contained: Callable[[list[str]], list[str]]
) -> EnvironmentDescription:
    command = [sys.executable, "-m", "sparring.environments.describing", found.target]
    try:
        done = subprocess.run(
            contained(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_without_secrets(os.environ),
            cwd=Path(found.file).parent,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _failed(found, f"gave no description within {seconds:g} s: does it work at import?")
    except OSError as error:
        return _failed(found, f"could not be asked: {error}")
    try:
        told = json.loads(done.stdout[:_MOST])
        return EnvironmentDescription.model_validate({**told, "name": found.name})
    except (ValueError, TypeError, ValidationError):
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return _failed(found, f"gave no description: {' '.join(last) or done.returncode}")


def _failed(found: FoundEnvironment, error: str) -> EnvironmentDescription:
    return EnvironmentDescription(name=found.name, error=f"{found.file} {error}")


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environment[name] for name in _PASSED_ON if name in environment}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


def _digest(found: FoundEnvironment, files: Iterable[Path]) -> str:
    told = hashlib.sha256(f"{version('sparring')} {found.target}".encode())
    for file in files:
        try:
            told.update(str(file).encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
        except OSError:
            told.update(b"gone")
    return told.hexdigest()[:32]


def _remembered(place: Path) -> EnvironmentDescription | None:
    try:
        told: dict[str, Any] = read_json(place)
        return EnvironmentDescription.model_validate(told)
    except (OSError, ValueError):
        return None
