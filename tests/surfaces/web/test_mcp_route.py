"""MCP over HTTP: the same tools, by token only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from sparring.operations.operation import Caller, Role
from sparring.operations.tokens import CreateToken, Tokens, create_token
from sparring.surfaces.tools.catalogue import tools_for
from sparring.surfaces.web.app import Server, build_app
from sparring.surfaces.web.mcp_route import McpRoute
from sparring.surfaces.web.sessions import BrowserSessions, RateLimit
from tests.surfaces.web.viewed import HIDDEN, HOST, SECRET, make_secret, owner_in

ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.fixture
def server(tmp_path: Path) -> Server:
    make_secret(tmp_path / "runs")
    owner = owner_in(tmp_path)
    return Server(BrowserSessions(Tokens(owner.runs, owner.folder).caller_of), (HOST,))


def client_of(server: Server) -> TestClient:
    app = build_app(server, extra=[Route("/mcp", McpRoute(server))])
    return TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)


def ask(client: TestClient, token: str, method: str, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {**ACCEPT, "authorization": f"Bearer {token}"}
    return client.post("/mcp", json=body, headers=headers)


def test_a_token_of_each_role_gets_the_tools_of_the_role(server: Server, tmp_path: Path) -> None:
    client, owner = client_of(server), owner_in(tmp_path)
    for role in ("viewer", "operator"):
        made = create_token(CreateToken(name=f"a-{role}", role=role), owner)  # type: ignore[arg-type]
        answer = ask(client, made.token, "tools/list")
        names = {tool["name"] for tool in answer.json()["result"]["tools"]}
        assert names == set(tools_for(Role[role.upper()]))


def test_tools_hold_held_out_cases_back(server: Server, tmp_path: Path) -> None:
    client = client_of(server)
    made = create_token(CreateToken(name="agent", role="operator"), owner_in(tmp_path))
    arguments = {"run": SECRET}
    answer = ask(client, made.token, "tools/call", name="list_rollouts", arguments=arguments)
    assert answer.json()["result"]["isError"]
    assert HIDDEN not in answer.text


def test_neither_a_stranger_nor_a_cookie_gets_tools(server: Server, tmp_path: Path) -> None:
    client = client_of(server)
    assert ask(client, "guess", "tools/list").status_code == 401
    assert client.post("/mcp", json={}, headers=ACCEPT).status_code == 401
    owner = Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path)
    client.cookies.set(server.cookie, server.sessions.sign_in(server.sessions.new_link(owner)))
    assert client.post("/mcp", json={}, headers=ACCEPT).status_code == 401


def test_a_caller_that_sends_too_much_waits(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    owner = owner_in(tmp_path)
    sessions = BrowserSessions(Tokens(owner.runs, owner.folder).caller_of)
    server = Server(sessions, (HOST,), rate=RateLimit(0.0, 3.0))
    made = create_token(CreateToken(name="agent", role="operator"), owner)
    client = client_of(server)
    codes = [ask(client, made.token, "tools/list").status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    headers = {"authorization": f"Bearer {made.token}"}
    assert client.get("/api/run.list", headers=headers).status_code == 429
