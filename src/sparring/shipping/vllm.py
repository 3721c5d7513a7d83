"""Serves merged models and adapters with vLLM, with the arguments that `how_to_run.md` shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sparring.contracts.errors import MissingPackage
from sparring.contracts.services import Service
from sparring.services import running

_START_SECONDS = 840.0  # less than the default of `hung_seconds`
# Gigabytes for keys and values on a CPU. vLLM's default takes nearly all memory.
_CPU_CACHE, _CPU_GIGABYTES = "VLLM_CPU_KVCACHE_SPACE", "4"


def find_vllm() -> str:
    """Return the path of the program `vllm`. Raises MissingPackage if it is not on the PATH."""
    if program := shutil.which("vllm"):
        return program
    raise MissingPackage(
        "vLLM was not found: its program `vllm` must be on the PATH. It may belong to another "
        "environment: PATH=/opt/vllm/bin:$PATH sparring ship …; or leave out --vllm"
    )


@contextmanager
def served_by_vllm(program: str, arguments: Sequence[str], log: Path) -> Iterator[str]:
    """Serve on loopback inside the `with` block; yields the URL of the OpenAI-compatible API. The
    server ends with the block, and with this process if it is killed."""
    cache = f"{_CPU_CACHE}={os.environ.get(_CPU_CACHE, _CPU_GIGABYTES)}"
    command = [
        "env",
        cache,
        "DO_NOT_TRACK=1",
        program,
        *arguments,
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
    ]
    service = Service("vllm", command, ready_http="/health", seconds=_START_SECONDS)
    with running([service], lambda _: log, Path.cwd()) as addresses:
        yield f"http://{addresses['vllm']}/v1"
