"""Registers a shipped model with a local Ollama, and serves it with vLLM.

From version 0.30 on, Ollama renders chats with the Jinja template in the GGUF file if the
Modelfile has no TEMPLATE. A Go template would render tools differently from training.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sparring.contracts.errors import FaultyArtefact, InfrastructureError, MissingPackage
from sparring.contracts.specs import Service
from sparring.services import NO_PROXY, running

REQUIRES = "0.30.0"
_HOST_VARIABLE = "OLLAMA_HOST"
_DEFAULT_HOST = "127.0.0.1"
_PORT = 11434
_START_SECONDS = 840.0  # less than the default of `hang_timeout`
# Gigabytes for keys and values on a CPU. vLLM's default takes nearly all memory.
_CPU_CACHE, _CPU_GIGABYTES = "VLLM_CPU_KVCACHE_SPACE", "4"


def modelfile(
    gguf: str, *, temperature: float, stops: Sequence[str], context: int, licence: str
) -> str:
    """Return the text of a Modelfile: no TEMPLATE, sampling as in the proof, and the context
    length, which Ollama would otherwise cut to its default."""
    lines = [
        f"FROM ./{gguf}",
        f"REQUIRES {REQUIRES}",
        f"PARAMETER temperature {temperature:g}",
        "PARAMETER top_k 0",
        "PARAMETER top_p 1",
        "PARAMETER min_p 0",
        "PARAMETER repeat_penalty 1",
        f"PARAMETER num_ctx {context}",
    ]
    lines += [f"PARAMETER stop {json.dumps(stop)}" for stop in stops]
    if licence:
        lines.append(f"LICENSE {json.dumps(licence)}")
    return "\n".join(lines) + "\n"


def register(
    folder: Path, name: str, command: Sequence[str] = ("ollama",), *, has_tools: bool = True
) -> dict[str, Any]:
    """Create the model in a local Ollama and return its capabilities. With `has_tools`, raises
    FaultyArtefact if they do not include tools."""
    try:
        done = subprocess.run(
            [*command, "create", name, "-f", "Modelfile"],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError as error:
        raise InfrastructureError(
            f"ollama cannot be started: {error}. Install Ollama {REQUIRES} or newer, or leave out "
            "--register"
        ) from error
    if done.returncode:
        raise InfrastructureError(f"`ollama create {name}` failed: {done.stderr.strip()[-300:]}")
    return check_registered(name, has_tools=has_tools)


def check_registered(name: str, *, has_tools: bool = True) -> dict[str, Any]:
    """Return the capabilities that Ollama lists for the model. With `has_tools`, raises
    FaultyArtefact if they do not include tools."""
    shown = _post("/api/show", {"model": name})
    capabilities = list(shown.get("capabilities") or [])
    if has_tools and "tools" not in capabilities:
        raise FaultyArtefact(
            f"Ollama does not list the capability tools for {name} (it lists "
            f"{', '.join(capabilities) or 'nothing'}); use Ollama {REQUIRES} or newer, which reads "
            "the template in the GGUF file"
        )
    return {"name": name, "capabilities": capabilities}


def host() -> str:
    """Return the URL of the local Ollama, from OLLAMA_HOST if it is set. As in Ollama, scheme and
    port are optional."""
    given = os.environ.get(_HOST_VARIABLE) or _DEFAULT_HOST
    parts = urlsplit(given if "://" in given else f"http://{given}")
    has_port = parts.port is not None or "://" in given
    port = "" if has_port else f":{_PORT}"
    return f"{parts.scheme}://{parts.netloc}{port}{parts.path.rstrip('/')}"


def _post(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - http, on loopback
        f"{host()}{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with NO_PROXY.open(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except (urllib.error.HTTPError, OSError) as error:
        raise InfrastructureError(f"Ollama at {host()} does not answer: {error}") from error


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
