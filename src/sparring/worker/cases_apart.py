"""`python -m sparring.worker.cases_apart FD`: read an environment's cases, in a process apart.

The training process gets training and validation cases from here, so that held-out ones never
enter its memory. What to read comes by standard input; the cases go to a file without a name, by
its descriptor. It starts while the training process still imports its libraries, and costs no
time of its own on two cores.
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

from sparring.contracts.errors import CasesBroken, MachineryFailure, SuiteError
from sparring.contracts.specs import RunSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import CASES
from sparring.worker.holding import supervised_attempt

if TYPE_CHECKING:
    from sparring.environments import Environment
    from sparring.suites import Suite


class CasesApart:
    """Cases that another process is reading."""

    def __init__(
        self,
        target: str,
        config: Mapping[str, Any],
        *,
        is_unsandboxed: bool,
        addresses: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        """What that process prints goes to `log`, as it may quote held-out cases; without one,
        to where this process prints."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - the suite reads from it
        descriptor = self._file.fileno()
        asked = {
            "target": target,
            "config": dict(config),
            "is_unsandboxed": is_unsandboxed,
            "addresses": dict(addresses or {}),
        }
        with nullcontext() if log is None else printing_into(log) as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sparring.worker.cases_apart", str(descriptor)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                pass_fds=(descriptor,),
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode())
        self._process.stdin.close()
        self._process.stdin = None

    def suite(self) -> Suite:
        """Wait for them. What went wrong there is raised here."""
        from sparring.suites.handed import HandedSuite

        out, _ = self._process.communicate()
        told = json.loads(out.splitlines()[-1]) if out.strip() else {}
        if told.get("error"):
            raise CasesBroken(f"{told['error']} while its cases were read:\n{told['message']}")
        if self._process.returncode or not told:
            raise MachineryFailure(
                f"the process that reads the cases ended with {self._process.returncode}, "
                "without a word; its last lines are in the log of the process `cases`"
            )
        return HandedSuite(self._file)


class CasesOfRun:
    """The cases of a run, but for held-out ones. They are read from now on, unless a service must
    be up first."""

    def __init__(self, folder: RunFolder, spec: RunSpec, *, is_unsandboxed: bool) -> None:
        self._spec = spec
        self._is_unsandboxed = is_unsandboxed
        self._log = folder.log(supervised_attempt() or max(1, folder.attempts()), CASES)
        self._reading = None if spec.services else self._read({})

    def suite(self, environment: Environment) -> Suite:
        """Wait for them; with `environment`, whose services are up."""
        reading = self._reading or self._read(environment.addresses)
        return reading.suite()

    def _read(self, addresses: Mapping[str, str]) -> CasesApart:
        return CasesApart(
            self._spec.target,
            self._spec.config,
            is_unsandboxed=self._is_unsandboxed,
            addresses=addresses,
            log=self._log,
        )


@contextmanager
def printing_into(log: Path) -> Iterator[int]:
    """The descriptor of a log, to print into."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        yield file.fileno()


def read_into(descriptor: int, asked: Mapping[str, Any]) -> None:
    from sparring.environments import load_environment
    from sparring.environments.environment import read_suite
    from sparring.suites.handed import hand_over

    environment = load_environment(asked["target"], asked["config"])
    environment.is_unsandboxed = asked["is_unsandboxed"]
    environment.learn_addresses(asked["addresses"])
    with os.fdopen(descriptor, "wb") as file:
        hand_over(read_suite(environment), file)


def _named(error: BaseException) -> str:
    """The kind of the first error, and the number of the record that a suite's own error names."""
    while error.__cause__ is not None:
        error = error.__cause__
    record = re.search(r"record (\d+)", str(error)) if isinstance(error, SuiteError) else None
    return type(error).__name__ + (f" at {record[0]}" if record else "")


def main() -> int:
    asked = json.load(sys.stdin)
    answer = os.dup(1)
    os.dup2(2, 1)  # what the environment prints goes to the log
    told: dict[str, Any] = {"ok": True}
    try:
        read_into(int(sys.argv[1]), asked)
    except Exception as error:
        told = {"error": _named(error), "message": str(error)}
    with os.fdopen(answer, "w") as out:
        out.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread of the environment's must not keep it alive
