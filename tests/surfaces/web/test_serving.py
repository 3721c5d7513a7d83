"""A team's server refuses to send tokens over an unencrypted network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from sparring.contracts.errors import InvalidInput
from sparring.operations.tokens import CreateToken, create_token
from sparring.surfaces.web import serving
from sparring.surfaces.web.serving import Binding, LinkSessions, bind, serve
from tests.surfaces.web.viewed import owner_in


def test_an_open_address_needs_encryption(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="unencrypted"):
        serve(owner_in(tmp_path), Binding("0.0.0.0", 0), print)


def test_a_taken_port_is_refused() -> None:
    taken = bind("127.0.0.1", 0)
    taken.socket.listen()
    with pytest.raises(InvalidInput, match="choose another --port"):
        bind("127.0.0.1", taken.port)
    taken.socket.close()


def test_a_used_link_announces_a_new_one(tmp_path: Path) -> None:
    announced: list[str] = []
    links = LinkSessions(owner_in(tmp_path), announced.append)
    secret = links.new_link(owner_in(tmp_path))
    assert links.sign_in(secret)
    assert links.sign_in(secret) == ""
    assert links.sign_in(announced[0])
    for _ in range(50):
        links.sign_in("guess")
    assert len(announced) <= 21


def test_a_team_signs_in_with_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    served: dict[str, Any] = {}

    def run(app: Any, bound: Any, **options: Any) -> None:
        served.update(app=app, **options)
        bound.socket.close()

    monkeypatch.setattr(serving, "run_server", run)
    binding = Binding("0.0.0.0", 0, ("runs.example.org",), is_behind_proxy=True)
    serve(owner_in(tmp_path), binding, print)
    assert served["proxy_headers"] is True
    made = create_token(CreateToken(name="vera"), owner_in(tmp_path))
    client = TestClient(served["app"], base_url="https://runs.example.org", follow_redirects=False)
    assert 'name="token"' in client.get("/enter").text
    assert client.post("/enter", data={"token": "wrong"}).status_code == 401
    entered = client.post("/enter", data={"token": made.token})
    assert entered.status_code == 303
    assert "secure" in entered.headers["set-cookie"].lower()
    assert client.get("/api/session").json()["name"] == "vera"
    assert "strict-transport-security" in client.get("/").headers
    assert client.get("/", headers={"host": "other.example.org"}).status_code == 403
