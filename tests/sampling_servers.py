"""Stand-in sampling servers for tests: as processes, and in threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from sparring.services import free_port
from tests.sampling_server import Weights, server_of

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "tests.sampling_server")


class StandIn:
    """One server process. `start` may come late, and again after `kill`."""

    def __init__(self, model: Path, *arguments: str) -> None:
        self.port = free_port()
        self._command = [*COMMAND, "--model", str(model), "--port", str(self.port), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, waits: bool = True) -> StandIn:
        self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE)
        if waits:
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == b"ready\n"
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()


class InProcess:
    """The same server in threads of this process, which starts at once."""

    def __init__(self, model: Path, fault: str = "", *, has_prefix_cache: bool = False) -> None:
        self._weights = Weights(str(model), fault, has_prefix_cache=has_prefix_cache)
        self._port = free_port()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> InProcess:
        self._server = server_of(self._weights, self._port)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
