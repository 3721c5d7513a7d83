"""`python -m sparring.jobs.case_loader FD`: reads an environment's cases in a separate process.

A training process gets its training and validation cases from this process, so that held-out
cases never enter its memory. The request arrives on standard input; the cases are written to the
file descriptor FD of an unnamed file. The two processes run in parallel: this one reads cases
while the training process imports its libraries.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.contracts.errors import CasesBroken, InfrastructureError, SuiteError
from sparring.contracts.specs import RunSpec
from sparring.jobs.worker import supervised_attempt
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import CASES

if TYPE_CHECKING:
    from sparring.environments import Environment
    from sparring.suites import Suite


class CaseLoader:
    """Reads cases in a separate process, which the constructor starts."""

    def __init__(
        self,
        target: str,
        config: Mapping[str, Any],
        *,
        is_unsandboxed: bool,
        addresses: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        """Start the process. Its output may quote held-out cases, so it goes to `log`, or to the
        standard error of this process if there is no log."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - the suite reads from it
        descriptor = self._file.fileno()
        request = {
            "target": target,
            "config": dict(config),
            "is_unsandboxed": is_unsandboxed,
            "addresses": dict(addresses or {}),
        }
        with nullcontext() if log is None else log_descriptor(log) as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sparring.jobs.case_loader", str(descriptor)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                pass_fds=(descriptor,),
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode())
        self._process.stdin.close()
        self._process.stdin = None

    def suite(self) -> Suite:
        """Wait for the process and return the training and validation cases.

        Raises CasesBroken if reading them failed, and InfrastructureError if the process ended
        without a reply.
        """
        from sparring.suites.training_view import TrainingView

        out, _ = self._process.communicate()
        reply = json.loads(out.splitlines()[-1]) if out.strip() else {}
        if reply.get("error"):
            raise CasesBroken(f"{reply['error']} while reading the cases:\n{reply['message']}")
        if self._process.returncode or not reply:
            raise InfrastructureError(
                f"the process that reads the cases exited with code {self._process.returncode} "
                "and reported nothing; its output is in the log of the process `cases`"
            )
        return TrainingView(self._file)


class RunCases:
    """The training and validation cases of a run. The constructor starts loading them; if the
    environment has services, which must be up first, `suite` does."""

    def __init__(self, folder: RunFolder, spec: RunSpec) -> None:
        self._spec = spec
        self._log = folder.log(supervised_attempt() or max(1, folder.attempts()), CASES)
        self._loader = None if spec.services else self._load({})

    def suite(self, environment: Environment) -> Suite:
        """Wait for the cases and return them. The services of `environment` must be up."""
        loader = self._loader or self._load(environment.addresses)
        return loader.suite()

    def _load(self, addresses: Mapping[str, str]) -> CaseLoader:
        return CaseLoader(
            self._spec.target,
            self._spec.config,
            is_unsandboxed=self._spec.play_settings.unsandboxed,
            addresses=addresses,
            log=self._log,
        )


@contextmanager
def log_descriptor(log: Path) -> Iterator[int]:
    """Open a log for appending, create it if needed, and yield its file descriptor."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        yield file.fileno()


def _write_cases(descriptor: int, request: Mapping[str, Any]) -> None:
    from sparring.environments import load_environment
    from sparring.environments.environment import read_suite
    from sparring.suites.training_view import write_training_view

    environment = load_environment(request["target"], request["config"])
    environment.is_unsandboxed = request["is_unsandboxed"]
    environment.add_addresses(request["addresses"])
    with os.fdopen(descriptor, "wb") as file:
        write_training_view(read_suite(environment), file)


def _error_name(error: BaseException) -> str:
    """Return the class name of the root cause and, for a suite error, the number of the record.
    The text quotes no case, so operators may read it."""
    while error.__cause__ is not None:
        error = error.__cause__
    record = re.search(r"record (\d+)", str(error)) if isinstance(error, SuiteError) else None
    return type(error).__name__ + (f" at {record[0]}" if record else "")


def main() -> int:
    """Read the request, write the cases, and print one JSON line: success or the error."""
    request = json.load(sys.stdin)
    reply_descriptor = os.dup(1)
    os.dup2(2, 1)  # output of the environment goes to the log
    reply: dict[str, Any] = {"ok": True}
    try:
        _write_cases(int(sys.argv[1]), request)
    except Exception as error:
        reply = {"error": _error_name(error), "message": str(error)}
    with os.fdopen(reply_descriptor, "w") as out:
        out.write(json.dumps(reply) + "\n")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread of the environment must not keep the process alive
