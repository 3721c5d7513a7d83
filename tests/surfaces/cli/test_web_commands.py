"""`sparring view` and `sparring serve` pass their options on."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from sparring.surfaces.cli import viewing
from sparring.surfaces.cli.main import app


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    for name in ("view", "export", "serve", "create_token"):
        monkeypatch.setattr(
            viewing,
            name,
            lambda *given, _name=name, **options: calls.append((_name, given, options)),
        )
    return calls


def test_options_are_passed_on(called: list[Any]) -> None:
    run = CliRunner().invoke
    for line in (
        ["view", "--no-browser", "--port", "8123"],
        ["view", "shop", "--export", "out", "--held-out"],
        ["serve", "--name", "a.example", "--name", "b.example", "--behind-proxy"],
        ["token", "create", "vera", "--role", "operator", "--days", "7"],
    ):
        assert run(app, line).exit_code == 0
    assert called[0] == ("view", (None,), {"port": 8123, "has_browser": False})
    assert called[1] == ("export", ("out", ["shop"], None), {"has_held_out": True})
    assert called[2][1][1]["names"] == ("a.example", "b.example")
    assert called[2][1][1]["is_behind_proxy"] is True
    assert called[3] == ("create_token", ("vera", "operator", 7.0, None), {"as_json": False})
