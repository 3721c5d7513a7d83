"""`python -m sparring.worker.cases_apart FD`: read an environment's cases, in a process apart.

The training process gets training and validation cases from here, so that held-out ones never
enter its memory. What to read comes by standard input; the cases go to a file without a name, by
its descriptor. It starts while the training process still imports its libraries, and costs no
time of its own on two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from sparring.contracts import errors
from sparring.contracts.errors import InvalidInput, MachineryFailure, SparringError


class CasesApart:
    """Cases that another process is reading."""

    def __init__(
        self,
        target: str,
        config: Mapping[str, Any],
        *,
        is_unsandboxed: bool,
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - the suite reads from it
        descriptor = self._file.fileno()
        asked = {
            "target": target,
            "config": dict(config),
            "is_unsandboxed": is_unsandboxed,
            "addresses": dict(addresses or {}),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sparring.worker.cases_apart", str(descriptor)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode())
        self._process.stdin.close()
        self._process.stdin = None

    def suite(self) -> Any:
        """Wait for them. What went wrong there is raised here."""
        from sparring.suites.handed import HandedSuite

        out, _ = self._process.communicate()
        told = json.loads(out.splitlines()[-1]) if out.strip() else {}
        if told.get("error"):
            raise _named(told["error"], told["message"])
        if self._process.returncode or not told:
            raise MachineryFailure(
                f"the process that reads the cases ended with {self._process.returncode}, "
                "without a word; its last lines are in the log"
            )
        return HandedSuite(self._file)


def _named(name: str, message: str) -> SparringError:
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, SparringError):
        return kind(message)
    return InvalidInput(message)


def read_into(descriptor: int, asked: Mapping[str, Any]) -> None:
    from sparring.environments import load_environment
    from sparring.environments.environment import read_suite
    from sparring.suites.handed import hand_over

    environment = load_environment(asked["target"], asked["config"])
    environment.is_unsandboxed = asked["is_unsandboxed"]
    environment.learn_addresses(asked["addresses"])
    with os.fdopen(descriptor, "wb") as file:
        hand_over(read_suite(environment), file)


def main() -> int:
    asked = json.load(sys.stdin)
    answer = os.dup(1)
    os.dup2(2, 1)  # what the environment prints goes to the log
    told: dict[str, Any] = {"ok": True}
    try:
        read_into(int(sys.argv[1]), asked)
    except SparringError as error:
        told = {"error": type(error).__name__, "message": str(error)}
    except Exception as error:
        told = {"error": "InvalidInput", "message": f"{type(error).__name__}: {error}"}
    with os.fdopen(answer, "w") as out:
        out.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread of the environment's must not keep it alive
