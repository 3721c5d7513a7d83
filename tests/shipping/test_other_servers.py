"""The Modelfile has no TEMPLATE, and a model that Ollama believes has no tools is refused.

Ollama has no package for the machines that run these tests: a fake with its contract answers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import FaultyArtefact, InfrastructureError, MissingPackage
from sparring.contracts.kinds import Form
from sparring.contracts.rollouts import Message
from sparring.shipping.how_to_run import Runnable, vllm_arguments
from sparring.shipping.llama_cpp import LlamaServer
from sparring.shipping.other_servers import (
    check_registered,
    find_vllm,
    modelfile,
    register,
    served_by_vllm,
)
from sparring.shipping.other_servers import host as ollama_host
from tests.policies.family_codecs import byte_level_codec_of
from tests.shipping.made import CALL, TOOLS, chats
from tests.shipping.parrot import write_parrot
from tests.shipping.test_how_to_run import VLLM, calls_of


class FakeOllama:
    """Answers /api/show as Ollama 0.30 does; `capabilities` depend on the template in the file."""

    def __init__(self) -> None:
        self.capabilities = ["completion", "tools"]
        self.requests: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append({"path": self.path, **body})
                data = json.dumps({"capabilities": outer.capabilities}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOllama]:
    fake = FakeOllama()
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{fake.server.server_port}")
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def test_a_modelfile_states_sampling_stops_and_context_and_no_template() -> None:
    text = modelfile(
        "m-q8_0.gguf", temperature=0.8, stops=["<|im_end|>"], context=8192, licence="apache-2.0"
    )
    assert text.splitlines() == [
        "FROM ./m-q8_0.gguf",
        "REQUIRES 0.30.0",
        "PARAMETER temperature 0.8",
        "PARAMETER top_k 0",
        "PARAMETER top_p 1",
        "PARAMETER min_p 0",
        "PARAMETER repeat_penalty 1",
        "PARAMETER num_ctx 8192",
        'PARAMETER stop "<|im_end|>"',
        'LICENSE "apache-2.0"',
    ]


def test_a_registered_model_must_have_tools(ollama: FakeOllama) -> None:
    assert check_registered("porter")["capabilities"] == ["completion", "tools"]
    assert ollama.requests == [{"path": "/api/show", "model": "porter"}]
    ollama.capabilities = ["completion"]
    with pytest.raises(FaultyArtefact, match="does not list the capability tools for porter"):
        check_registered("porter")
    assert check_registered("porter", has_tools=False)["capabilities"] == ["completion"]


def test_registering_runs_ollama_create_in_the_folder(ollama: FakeOllama, tmp_path: Path) -> None:
    script = tmp_path / "ollama"
    script.write_text('#!/bin/sh\npwd > called; echo "$@" >> called\n')
    script.chmod(0o755)
    folder = tmp_path / "gguf"
    folder.mkdir()
    assert register(folder, "porter", [str(script)])["name"] == "porter"
    called = (folder / "called").read_text().splitlines()
    assert called == [str(folder), "create porter -f Modelfile"]


def test_without_ollama_the_refusal_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"Install Ollama 0\.30\.0 or newer"):
        register(tmp_path, "porter", [str(tmp_path / "nothing")])


def test_a_failing_create_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="`ollama create porter` failed"):
        register(tmp_path, "porter", ["false"])


def test_an_ollama_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    with pytest.raises(InfrastructureError, match=r"Ollama at http://127\.0\.0\.1:9 does not"):
        check_registered("porter")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://0.0.0.0:11434"),
        ("box:8080", "http://box:8080"),
        ("http://box:8080", "http://box:8080"),
        ("https://box", "https://box"),
        ("http://box:8080/ollama/", "http://box:8080/ollama"),
    ],
)
def test_scheme_and_port_of_the_host_are_optional(
    monkeypatch: pytest.MonkeyPatch, given: str, url: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", given)
    assert ollama_host() == url


def test_vllm_is_found_on_the_path_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackage, match="must be on the PATH"):
        find_vllm()
    (tmp_path / "vllm").write_text("#!/bin/sh\n")
    (tmp_path / "vllm").chmod(0o755)
    assert find_vllm() == str(tmp_path / "vllm")


@pytest.mark.parametrize(("given", "used"), [(None, "4"), ("9", "9")])
def test_vllm_does_not_take_all_of_the_memory_of_a_cpu(
    given: str | None, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "VLLM_CPU_KVCACHE_SPACE"
    monkeypatch.delenv(variable, raising=False)
    if given:
        monkeypatch.setenv(variable, given)
    program = tmp_path / "vllm"
    program.write_text(
        f"#!{sys.executable}\n"
        "import http.server, os, sys\n"
        "class Healthy(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200)\n"
        "        self.end_headers()\n"
        f"print('cache', os.environ['{variable}'], flush=True)\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[-1])), Healthy).serve_forever()\n"
    )
    program.chmod(0o755)
    with served_by_vllm(str(program), [], tmp_path / "log"):
        assert f"cache {used}" in (tmp_path / "log").read_text()


@pytest.mark.vllm
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not VLLM.exists(), reason=f"no vLLM environment at {VLLM}")
@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "lfm2", "llama3", "gemma4"])
def test_vllm_reads_the_familys_calls_by_the_printed_options(name: str, tmp_path: Path) -> None:
    codec = byte_level_codec_of(name)
    ask = chats()[0]
    last = codec.encode_prompt(ask, TOOLS).ids[-1]
    reply = codec.decode(codec.encode_reply(Message("assistant", "", calls=(CALL,))))
    write_parrot(codec, last, reply, tmp_path / "merged")
    shipped = Runnable("shipped", codec.family, "b", True, 2048, has_merged=True)
    arguments = vllm_arguments(shipped, Form.MERGED, folder=str(tmp_path / "merged"))
    arguments += ["--enforce-eager", "--dtype", "float32"]
    program = str(VLLM.with_name("vllm"))
    with served_by_vllm(program, arguments, tmp_path / "log") as address:
        server = LlamaServer(address.removesuffix("/v1"))
        assert calls_of(server, ask) == [("search", json.loads(CALL.arguments))]
