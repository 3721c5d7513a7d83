"""What serves: the web view with its exports, the team's server, and the tool server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.surfaces.web import serving as servers
from tests.surfaces.cli.terminal import Terminal
from tests.surfaces.web.viewed import SECRET, TRAINING, make_secret, make_training


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    make_training(tmp_path / "runs")
    make_secret(tmp_path / "runs")
    return Terminal(tmp_path, monkeypatch, capsys)


def test_an_export_says_what_it_leaves_out(terminal: Terminal) -> None:
    written = terminal.type("view", "--export", "out")
    assert "wrote 2 runs" in written.out
    assert SECRET in written.err
    assert TRAINING in (terminal.folder / "out" / "export.js").read_text()
    chosen = terminal.type("view", SECRET, "--export", "other", "--held-out")
    assert ("wrote 1 runs" in chosen.out, chosen.err) == (True, "")


def test_a_folder_without_runs_is_refused(terminal: Terminal) -> None:
    refused = terminal.type("view", "--runs", "nothing")
    assert (refused.code, "there are no runs in" in refused.err) == (2, True)


def test_a_certificate_needs_its_key(terminal: Terminal) -> None:
    refused = terminal.type("serve", "--cert", "cert.pem")
    assert (refused.code, "belong together" in refused.err) == (2, True)


def test_servers_get_what_was_typed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(servers, "view", lambda *given: calls.append(given))
    monkeypatch.setattr(servers, "serve", lambda *given: calls.append(given))
    assert terminal.type("view", "--no-browser", "--port", 8123).code == 0
    names = ["--name", "a.example", "--name", "b.example"]
    assert terminal.type("serve", *names, "--behind-proxy").code == 0
    assert calls[0][1] == 8123
    binding = calls[1][1]
    assert (binding.port, binding.names) == (8700, ("a.example", "b.example"))
    assert binding.is_behind_proxy


def test_mcp_prints_the_command_for_clients_and_the_schemas_for_agents(terminal: Terminal) -> None:
    config = terminal.type("mcp", "--print-config", "--as", "coach").json
    server = config["mcpServers"]["sparring"]
    assert server["command"] == sys.executable
    folder = str(terminal.folder.resolve())
    assert server["args"] == ["-m", "sparring", "mcp", "--project", folder, "--as", "coach"]
    viewer = ["mcp", "--print-config", "--role", "viewer", "--runs", "other"]
    arguments = terminal.type(*viewer).json["mcpServers"]["sparring"]["args"]
    assert arguments[-4:] == ["--role", "viewer", "--runs", f"{folder}/other"]
    every = terminal.type("mcp", "--print-tools").json
    some = terminal.type("mcp", "--print-tools", "--role", "viewer").json
    assert 0 < len(some) < len(every)


def test_mcp_refuses_the_role_owner_and_a_missing_project(terminal: Terminal) -> None:
    refused = terminal.type("mcp", "--role", "owner", "--print-tools")
    assert refused.code == 2
    assert "--role must be operator or viewer, not 'owner'" in refused.err
    nowhere = terminal.type("mcp", "--print-config", "--project", "nowhere")
    assert "there is no such folder" in nowhere.err
