"""The version of vLLM that sampling servers run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparring.operations.doctor import examine
from sparring.operations.operation import Caller, NoArguments, Role
from sparring.operations.vllm_versions import is_tested, server_versions
from tests.sampling_server import Handler, server_of


@pytest.fixture
def address():
    import threading

    server = server_of(object())  # type: ignore[arg-type]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_version_of_a_running_server_is_read_from_it(address, monkeypatch):
    def tell(handler):
        handler._reply(200, {"version": "0.32.0"})

    monkeypatch.setattr(Handler, "do_GET", tell)
    assert server_versions({"servers": [address]}) == {address: "0.32.0"}
    assert server_versions({"servers": f"{address}/v1"}) == {f"{address}/v1": "0.32.0"}


def test_a_server_that_does_not_answer_is_unknown():
    assert server_versions({"servers": ["http://127.0.0.1:9"]}) == {"http://127.0.0.1:9": None}


def test_servers_that_join_run_the_command_of_the_run():
    command = [sys.executable, "-m", "vllm"]
    assert server_versions({"servers": "joined", "command": command}) == {sys.executable: None}


def test_a_python_without_vllm_is_unknown():
    assert server_versions({"servers": 2, "command": [sys.executable]}) == {sys.executable: None}
    assert server_versions({"command": ["/no/such/python"]}) == {"/no/such/python": None}


@pytest.mark.parametrize(
    ("place", "version", "tested"),
    [
        ("http://a:1", "0.32.4", True),
        ("http://a:1", "0.30.0", False),
        ("this environment", "0.30.1", True),
        ("this environment", "0.32.0", False),
    ],
)
def test_the_pair_of_versions_decides(place, version, tested):
    assert is_tested(place, version) is tested


def test_doctor_reports_the_servers_of_a_project(tmp_path: Path):
    (tmp_path / "sparring.toml").write_text('[sampling]\nservers = ["http://127.0.0.1:9"]\n')
    caller = Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path)
    findings = examine(NoArguments(), caller).findings
    (finding,) = [each for each in findings if each.what.startswith("vLLM")]
    assert (finding.standing, finding.found) == ("warning", "not found")
