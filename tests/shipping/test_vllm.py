"""vLLM is found on the PATH, and reads what a shipped model writes. Opt in with `pytest -m vllm`;
`make vllm-venv` makes its environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sparring.contracts.errors import MissingPackage
from sparring.contracts.rollouts import Message
from sparring.contracts.ship_specs import Form
from sparring.shipping.how_to_run import Runnable, vllm_arguments
from sparring.shipping.llama_cpp import LlamaServer
from sparring.shipping.vllm import find_vllm, served_by_vllm
from tests.policies.family_codecs import byte_level_codec_of
from tests.shipping.made import CALL, TOOLS, chats
from tests.shipping.parrot import write_parrot
from tests.shipping.test_call_parsers import VLLM, calls_of


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
