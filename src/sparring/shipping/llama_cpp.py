"""Finds llama.cpp and runs its server, converter and quantiser.

The search order is: a folder that the user names, `LLAMA_CPP_PATH`, the PATH, and the
Python packages xllamacpp (server) and cyllama (quantiser).
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.chat import ChatMessage, ToolSchema
from sparring.contracts.errors import (
    FaultyArtefact,
    InfrastructureError,
    InvalidInput,
    MissingPackage,
)
from sparring.contracts.specs import Service
from sparring.installed import how_to_install
from sparring.services import NO_PROXY, running

VARIABLE = "LLAMA_CPP_PATH"
_CONVERTER = "convert_hf_to_gguf.py"
_START_SECONDS = 600.0
_ALIAS = "shipped"
_FORCE = 1000.0  # exceeds the difference of any two logits


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """The commands of llama.cpp's parts on this machine; empty for a part that is missing."""

    server: tuple[str, ...] = ()
    quantize: tuple[str, ...] = ()
    converter: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """The origin of the server, for reports: `xllamacpp`, or the name of the program."""
        if not self.server:
            return "none"
        return "xllamacpp" if self.is_package else Path(self.server[0]).name

    @property
    def is_package(self) -> bool:
        """Whether the server is that of the Python package xllamacpp."""
        return self.server[:1] == (sys.executable,)


def find_llama_cpp(folder: str = "") -> LlamaCpp:
    """Find llama.cpp in `folder`, in the folder that LLAMA_CPP_PATH names, on the PATH, or as
    packages. The converter is searched for only in the two folders. Raises InvalidInput if `folder`
    contains no part of llama.cpp."""
    named = [each for each in (folder, os.environ.get(VARIABLE, "")) if each]
    places = [Path(each).expanduser().resolve() for each in named]
    if folder and not _holds_llama_cpp(places[0]):
        raise InvalidInput(
            f"--llama-cpp {folder}: there is no llama-server, llama-quantize or "
            "convert_hf_to_gguf.py; name the folder that contains them"
        )
    server = _program("llama-server", places)
    if not server and importlib.util.find_spec("xllamacpp") is not None:
        server = (sys.executable, "-m", "sparring.shipping.llama_host")
    quantize = _program("llama-quantize", places)
    if not quantize and importlib.util.find_spec("cyllama") is not None:
        quantize = (sys.executable, "-m", "sparring.shipping.cyllama_quantize")
    scripts = [each / _CONVERTER for each in places]
    converter = next(((sys.executable, str(each)) for each in scripts if each.is_file()), ())
    return LlamaCpp(server, quantize, converter)


def _holds_llama_cpp(folder: Path) -> bool:
    programs = (_inside(folder, name) for name in ("llama-server", "llama-quantize"))
    return any(programs) or (folder / _CONVERTER).is_file()


def _inside(folder: Path, name: str) -> tuple[str, ...]:
    for path in (folder / name, folder / "bin" / name, folder / "build" / "bin" / name):
        if path.is_file() and os.access(path, os.X_OK):
            return (str(path),)
    return ()


def _program(name: str, places: list[Path]) -> tuple[str, ...]:
    for place in places:
        if program := _inside(place, name):
            return program
    found = shutil.which(name)
    return (found,) if found else ()


def require_server(found: LlamaCpp) -> None:
    """Raise MissingPackage if there is no server; the message states how to get one."""
    if not found.server:
        raise MissingPackage(
            f"no llama.cpp server was found: {how_to_install('ship')}, or pass --llama-cpp "
            f"FOLDER, or set {VARIABLE} to the folder with llama-server"
        )


def require_quantizer(found: LlamaCpp, quantization: str) -> None:
    """Raise MissingPackage if there is no quantiser; the message states how to get one."""
    if not found.quantize:
        raise MissingPackage(
            f"{quantization} needs llama.cpp's quantiser: pip install cyllama, or pass --llama-cpp "
            f"FOLDER, or set {VARIABLE} to the folder with llama-quantize; q8_0 and f16 need none"
        )


class LlamaServer:
    """A client of a running llama.cpp server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._end: int | None = None

    @property
    def base_url(self) -> str:
        """The URL of the OpenAI-compatible API."""
        return f"{self.address}/v1"

    @property
    def model(self) -> str:
        """The name of the model in requests."""
        return _ALIAS

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request with a JSON body and return the decoded response."""
        return self._ask(path, json.dumps(body).encode())

    def get(self, path: str) -> dict[str, Any]:
        """Send a GET request and return the decoded response."""
        return self._ask(path, None)

    def _ask(self, path: str, body: bytes | None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - http, on loopback
            f"{self.address}{path}", data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with NO_PROXY.open(request, timeout=300) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")[:500]
            if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:
                raise InfrastructureError(f"llama.cpp's server is not ready: {text}") from error
            raise FaultyArtefact(f"llama.cpp refuses {path}: {text}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise InfrastructureError(
                f"llama.cpp's server did not answer {path}: {error}; see its log"
            ) from error

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> str:
        """Return the prompt that the server's own template engine renders for a chat."""
        body: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
        if tools:
            body["tools"] = tools
        return str(self.post("/apply-template", body)["prompt"])

    def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        """Return the ids of a text; text that spells a special token becomes that token."""
        body = {"content": text, "add_special": add_special, "parse_special": True}
        return [int(each) for each in self.post("/tokenize", body)["tokens"]]

    def next_logprobs(self, ids: list[int], token: int, count: int) -> dict[int, float]:
        """Return the log-probabilities of the `count` most probable next tokens, and of `token`.

        A bias forces the server to sample `token`; the server reports its log-probability without
        the bias. It reports nothing for a token that is only part of a character. In that case the
        end-of-sequence token is forced, and `token` is included only if it is among the most
        probable.
        """
        for forced in (token, None):
            body: dict[str, Any] = {
                "prompt": ids,
                "n_predict": 1,
                "n_probs": count,
                "temperature": 0,
                "cache_prompt": True,
                "logit_bias": [[self._end_id() if forced is None else forced, _FORCE]],
            }
            for found in self.post("/completion", body).get("completion_probabilities") or ():
                rows = [found, *found["top_logprobs"]]
                return {int(each["id"]): float(each["logprob"]) for each in rows}
        return {}

    def _end_id(self) -> int:
        """Return the id of the model's end-of-sequence token."""
        if self._end is None:
            self._end = self.tokenize(str(self.get("/props")["eos_token"]))[0]
        return self._end


@contextmanager
def served(
    found: LlamaCpp, model: Path, log: Path, *, context: int = 4096, parallel: int = 1
) -> Iterator[LlamaServer]:
    """Serve a GGUF file on loopback inside the `with` block. The server ends with the block.
    Where `setpriv` is installed, it also ends if this process is killed."""
    require_server(found)
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 2) // 2))
    command = [
        *found.server, "--model", str(model), "--port", "{port}", "--ctx-size",
        str(context * parallel), "--parallel", str(parallel), "--threads", threads,
        "--alias", _ALIAS,
    ]  # fmt: skip
    if not found.is_package:
        command += ["--host", "127.0.0.1", "--jinja", "--no-warmup"]
    service = Service("llama", command, ready_http="/health", seconds=_START_SECONDS)
    with running([service], lambda _: log, Path.cwd()) as addresses:
        yield LlamaServer(f"http://{addresses['llama']}")


def quantize(found: LlamaCpp, source: Path, target: Path, quantization: str) -> None:
    """Quantise a GGUF file with llama.cpp, in a separate process."""
    require_quantizer(found, quantization)
    _run([*found.quantize, str(source), str(target), quantization.upper()], quantization)


def convert(found: LlamaCpp, folder: Path, target: Path, quantization: str) -> None:
    """Convert a merged model with llama.cpp's own converter."""
    arguments = [str(folder), "--outfile", str(target), "--outtype", quantization]
    _run([*found.converter, *arguments], "convert_hf_to_gguf.py")


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise InfrastructureError(
            f"{what} ended with exit code {done.returncode}: {' '.join(lines[-2:])[:500]}"
        )
