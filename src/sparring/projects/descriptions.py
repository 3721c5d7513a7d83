"""Describes an environment by importing it in a separate process with a deadline.

The process inherits only variables such as PATH and HOME; for the owner, a failed import is
repeated with all environment variables. Where bubblewrap works, the process has no network, sees no
other processes and cannot write files. Descriptions are cached by the content of the source files,
except those with an error or with the owner's variables.
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
from sparring.contracts.errors import InvalidInput
from sparring.run_folder.files import read_json, write_json
from sparring.sandbox.support import read_only_command

SECONDS = 60.0
_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
_MAX_BYTES = 4_000_000
# Of a read-only file system: Python's error, and SQLite's.
_WRITE_ERRORS = ("Errno 30", "unable to open database file", "attempt to write a readonly database")


def describe(
    found: FoundEnvironment,
    files: Iterable[Path],
    cache: Path | None = None,
    seconds: float = SECONDS,
    *,
    is_owner: bool = False,
) -> EnvironmentDescription:
    """Return an environment's fields, defaults and measures, or a description with an `error`.

    With `is_owner`, a failed import is repeated with all environment variables, and without the
    sandbox if it failed because it cannot write.
    """
    digest = _digest(found, files)
    path = cache / f"{digest}.json" if cache is not None else None
    if path is not None and (known := _read_cached(path)) is not None:
        return known
    description = _describe_in_process(
        found, seconds, read_only_command, _without_secrets(os.environ)
    )
    if description.error and is_owner:
        own = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        confine = list if _cannot_write(description) else read_only_command
        description = _describe_in_process(found, seconds, confine, own)
        if _cannot_write(description):
            description = _describe_in_process(found, seconds, list, own)
        return description  # not cached: it may contain values of the owner's variables
    if description.error:
        cause = "an operator's request does not pass on your shell's environment variables"
        advice = "if the import needs one, read it where it is used instead"
        description = description.model_copy(
            update={"error": f"{description.error} ({cause}; {advice})"}
        )
    if path is not None and not description.error:
        try:
            write_json(path, description.model_dump(mode="json"), durable=False)
        except OSError:
            return description
    return description


def _cannot_write(description: EnvironmentDescription) -> bool:
    return any(each in description.error for each in _WRITE_ERRORS)


def _describe_in_process(
    found: FoundEnvironment,
    seconds: float,
    confine: Callable[[list[str]], list[str]],
    environment: Mapping[str, str],
) -> EnvironmentDescription:
    command = [sys.executable, "-m", "sparring.environments.self_description", found.target]
    # The processes of a run import from the current folder; this one has the file's.
    paths = filter(None, [str(Path.cwd()), environment.get("PYTHONPATH")])
    try:
        process = subprocess.run(
            confine(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            cwd=Path(found.file).parent,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _failed(
            found, f"was not imported within {seconds:g} s; move slow work into functions"
        )
    except OSError as error:
        return _failed(found, f"could not be described: {error}")
    try:
        reply = json.loads(process.stdout[:_MAX_BYTES])
        return EnvironmentDescription.model_validate({**reply, "name": found.name})
    except (ValueError, TypeError, ValidationError, InvalidInput):
        last_line = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        cause = " ".join(last_line) or f"its process ended with exit code {process.returncode}"
        return _failed(found, f"could not be described: {cause}")


def _failed(found: FoundEnvironment, error: str) -> EnvironmentDescription:
    return EnvironmentDescription(name=found.name, error=f"{found.file} {error}")


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: environment[name] for name in _INHERITED_VARIABLES if name in environment}
    return {**inherited, "PYTHONDONTWRITEBYTECODE": "1"}


def _digest(found: FoundEnvironment, files: Iterable[Path]) -> str:
    digest = hashlib.sha256(f"{version('sparring')} {found.target}".encode())
    for file in files:
        try:
            digest.update(str(file).encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
        except OSError:
            digest.update(b"gone")
    return digest.hexdigest()[:32]


def _read_cached(path: Path) -> EnvironmentDescription | None:
    try:
        content: dict[str, Any] = read_json(path)
        return EnvironmentDescription.model_validate(content)
    except (OSError, ValueError):
        return None
