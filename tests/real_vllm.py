"""Real vLLM servers on a CPU, for tests with the mark `vllm` (see policies/test_real_vllm.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from sparring.jobs.sampling_server import CPU_ARGUMENTS
from sparring.services import free_port

ROOT = Path(__file__).resolve().parents[1]
PYTHON = Path(os.environ.get("SPARRING_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))
COMMAND = (str(PYTHON), "-m", "vllm.entrypoints.openai.api_server")
ARGUMENTS = (*CPU_ARGUMENTS, "--max-model-len", "1024", "--dtype", "float32")
ADAPTERS = ("--enable-lora", "--max-lora-rank", "16", "--max-loras", "4")
VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}


class RealServer:
    """One server process. It is ready some minutes after `start`."""

    def __init__(self, model: Path, log: Path, *arguments: str) -> None:
        if not PYTHON.exists():
            pytest.skip(f"no vLLM environment at {PYTHON}; `make vllm-venv` makes one")
        self.port = free_port()
        self._log = log
        self._command = [*COMMAND, "--model", str(model), "--host", "127.0.0.1"]
        self._command += ["--port", str(self.port), "--logprobs-mode", "processed_logprobs"]
        self._command += [*ARGUMENTS, *arguments]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> RealServer:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**os.environ, **VARIABLES},
                start_new_session=True,
            )
        return self

    def wait(self, seconds: float = 600) -> RealServer:
        deadline = time.monotonic() + seconds
        while True:
            try:
                urllib.request.urlopen(f"{self.address}/health", timeout=1)
            except OSError:
                assert self._process.poll() is None, self._log.read_text()[-2000:]
                assert time.monotonic() < deadline, self._log.read_text()[-2000:]
                time.sleep(1)
            else:
                return self

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
