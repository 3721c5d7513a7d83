"""Starts a worker's keeper process and requests workspaces from it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import InfrastructureError
from sparring.sandbox.command import SandboxLimits

_PACKAGE = Path(__file__).resolve().parents[2]
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class HeldWorkspace:
    """A workspace that the keeper holds: the path of its mount namespace, and the path by which
    this process accesses the folder that contains the workspace."""

    namespace: Path
    folder: Path


class Keeper:
    """A client of the keeper, a process that ends the sandboxes of this process and removes their
    files when this process ends or is killed.

    Where mount namespaces are available, `has_bounded_workspaces` is true, and the keeper gives
    each workspace its own file system.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._request_number = 0
        self._has_failed = False
        self.has_bounded_workspaces = False
        self.has_user_namespace = os.geteuid() != 0
        if all(map(shutil.which, ("unshare", "nsenter"))):
            own_user = ["--user", "--map-root-user"] if self.has_user_namespace else []
            unshare = ["unshare", *own_user, "--mount", "--propagation", "private", "--"]
            self.has_bounded_workspaces = self._start(unshare, folder)
        if not self.has_bounded_workspaces and not self._start([], folder):
            raise InfrastructureError(
                "the keeper process of the sandboxes did not start; run `sparring doctor`"
            )

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, or was killed because a request to it failed."""
        return self._has_failed or self._process.poll() is not None

    def hold(self, number: int, limits: SandboxLimits, owner: int | None) -> HeldWorkspace:
        """Create a workspace with the disk limits of `limits`, owned by the user id `owner`."""
        reply = self._request(
            {
                "do": "hold",
                "workspace": number,
                "bytes": limits.disk_bytes,
                "files": limits.files,
                "owner": owner,
            }
        )
        descriptors = Path(f"/proc/{self._process.pid}/fd")
        return HeldWorkspace(
            descriptors / str(reply["namespace"]), descriptors / str(reply["inside"])
        )

    def release(self, number: int) -> None:
        """Have the keeper close its descriptors of a workspace; ignores a keeper that has ended."""
        with contextlib.suppress(InfrastructureError):  # it closed them when it ended
            self._request({"do": "release", "workspace": number})

    def enter_command(self, namespace: Path) -> list[str]:
        """Return the command prefix that enters a workspace's namespace as an ordinary user."""
        own = f"--user=/proc/{self._process.pid}/ns/user"
        return ["nsenter", f"--mount={namespace}", own, "--preserve-credentials", "--"]

    def leave(self) -> None:
        """Close the pipes in a forked child, so that the keeper waits only for the parent."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def end(self) -> None:
        """Stop the process and wait until it has cleaned up."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _start(self, prefix: list[str], folder: Path) -> bool:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "sparring.sandbox.keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath, "PYTHONPATH": str(_PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
        try:
            self._write(str(folder))
            return self._read() == {}
        except (OSError, ValueError):
            self._process.kill()  # it must not clean up the folder of the keeper that replaces it
            self._process.wait()
            return False

    def _request(self, request: dict[str, object]) -> dict[str, int]:
        with self._lock:
            self._request_number += 1
            try:
                self._write(json.dumps({**request, "number": self._request_number}))
                reply = self._read()
                if reply.pop("number", None) != self._request_number:
                    raise ValueError("the reply belongs to another request")
            except (OSError, ValueError) as error:
                self._has_failed = True  # `poll` may not report the killed process at once
                self._process.kill()  # a late reply would be read as the next one
                raise InfrastructureError(
                    f"the keeper process of the sandboxes does not answer: {error}"
                ) from error
        if "error" in reply:
            error_text = reply["error"]
            raise InfrastructureError(
                f"the keeper process of the sandboxes refused {request['do']!r}: {error_text}"
            )
        return reply

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> dict[str, int]:
        assert self._process.stdout is not None
        poller = select.poll()
        poller.register(self._process.stdout, select.POLLIN | select.POLLHUP)
        if not poller.poll(1000 * _SECONDS):
            raise TimeoutError(f"no reply within {_SECONDS:g} s")
        reply: dict[str, int] = json.loads(self._process.stdout.readline())
        return reply
