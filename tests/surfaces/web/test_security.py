"""Requests of other sites, for other hosts and by other roles are refused; held-out cases stay
with the owner, however somebody asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller, Role
from sparring.surfaces.web.calls import web_operations
from sparring.surfaces.web.security import SecurityMiddleware
from tests.surfaces.web.viewed import (
    HIDDEN,
    HOST,
    SECRET,
    TRAINING,
    client_of,
    make_secret,
    make_training,
    owner_in,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_training(tmp_path / "runs")
    make_secret(tmp_path / "runs")
    return tmp_path


def somebody(folder: Path, role: Role) -> TestClient:
    name = role.name.lower()
    return client_of(Caller(role, folder / "runs", f"some-{name}", folder=folder))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},  # DNS rebinding
        {"host": "evil.example:8000"},
        {"host": "127.0.0.1"},
        {"host": "127.0.0.1:8001"},
        {"host": "127.0.0.1:8000.evil.example"},
        {"host": ""},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": f"http://{HOST}.evil.example"},
        {"origin": f"http://evil.example/{HOST}"},
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_requests_of_other_sites_and_hosts_are_refused(
    folder: Path, headers: dict[str, str]
) -> None:
    client = client_of(owner_in(folder))
    for path in ("/", "/api/run.list", "/enter", "/api/live?run=shop-1", "/app.js"):
        assert client.get(path, headers=headers).status_code == 403
    assert client.post("/api/run.list", json={}, headers=headers).status_code == 403
    assert (
        client.post("/api/run.delete", json={"run": TRAINING}, headers=headers).status_code == 403
    )
    assert (folder / "runs" / TRAINING).is_dir()


def test_two_host_headers_are_refused() -> None:
    middleware = SecurityMiddleware(lambda *_: None, (HOST,))  # type: ignore[arg-type,return-value]
    pair = [(b"host", HOST.encode()), (b"host", b"evil.example")]
    assert middleware.refusal_of(Headers(raw=pair))
    assert not middleware.refusal_of(Headers(raw=pair[:1]))


def test_a_form_of_another_site_cannot_change_anything(folder: Path) -> None:
    client = client_of(owner_in(folder))
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""):
        body = json.dumps({"run": TRAINING})
        answer = client.post("/api/run.delete", content=body, headers={"content-type": kind})
        assert answer.status_code == 400
    assert (folder / "runs" / TRAINING).is_dir()


def test_every_answer_has_the_headers_that_protect_it(folder: Path) -> None:
    client = client_of(owner_in(folder))
    for path in ("/", "/app.js", "/api/run.list", "/enter", "/nothing"):
        headers = client.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "../../../../etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "....//....//etc/passwd",
        "/etc/passwd",
        "static/../app.py",
        "..\\..\\app.py",
        "app.js%00.html",
        "app.js/../../app.py",
        ".sparring/activity.jsonl",
    ],
)
def test_no_path_leaves_the_folder_of_the_app(folder: Path, path: str) -> None:
    client = client_of(owner_in(folder))
    for prefix in ("/", "/report/", "/api/"):
        answer = client.get(prefix + path)
        assert answer.status_code in (404, 400, 303, 405)
        assert "root:" not in answer.text
        assert "import" not in answer.text


@pytest.mark.parametrize("run", ["../secret", "/etc", "..", ".sparring", "a/b", "\x00", "x" * 5000])
def test_no_run_is_named_by_a_path(folder: Path, run: str) -> None:
    client = client_of(owner_in(folder))
    for name in ("run.show", "run.curves", "run.logs", "rollout.list", "run.delete", "run.details"):
        assert client.post(f"/api/{name}", json={"run": run}).status_code in (400, 404)


def test_a_viewer_may_call_nothing_that_needs_more(folder: Path) -> None:
    client = somebody(folder, Role.VIEWER)
    given = {"run": TRAINING, "rollout": "lamps.0.0", "plan": "plan-1", "environment": "shop"}
    for name, each in web_operations().items():
        arguments = {key: given[key] for key in given if key in each.request.model_fields}
        if each.role > Role.VIEWER:
            answer = client.post(f"/api/{name}", json=arguments)
            assert answer.status_code in (400, 403, 404), (name, answer.text)
    assert (folder / "runs" / TRAINING).is_dir()


def test_an_operator_changes_state_only_by_its_tools(folder: Path) -> None:
    client = somebody(folder, Role.OPERATOR)
    tools = {name for name, each in web_operations(Role.OPERATOR).items() if each.changes_state}
    assert "plan.start" in tools
    assert not tools & {"train.start", "eval.start", "run.delete", "run.clone", "env.new"}
    assert client.post("/api/train.start", json={"environment": "/x.py:X"}).status_code == 404
    assert client.post("/api/run.delete", json={"run": TRAINING}).status_code == 404
    assert client.post("/api/run.stop", json={"run": TRAINING}).status_code == 403
    assert client.get(f"/report/{TRAINING}").status_code == 403


def attempts() -> Iterator[tuple[str, dict[str, Any]]]:
    """Ways to ask for what a run on held-out cases holds."""
    names = (SECRET, "secret", SECRET[:4], SECRET.upper(), f"{SECRET} ", f"./{SECRET}")
    for name in names:
        for operation in ("rollout.list", "rollout.pairs", "run.logs", "run.changes"):
            yield operation, {"run": name}
    for log in ("rollouts", "validation", "demonstrations", "../rollouts"):
        yield "rollout.list", {"run": SECRET, "log": log}
        yield "rollout.show", {"run": SECRET, "log": log, "rollout": "plum.0.0"}
    for operation in ("rollout.show", "rollout.group", "rollout.tokens"):
        yield operation, {"run": SECRET, "rollout": "plum.0.0"}
        yield operation, {"run": TRAINING, "rollout": f"../../{SECRET}/rollouts/rank-0/plum.0.0"}
    yield "rollout.list", {"run": SECRET, "text": "plum"}
    yield "rollout.list", {"run": SECRET, "case": "plum", "count": 1}
    yield "rollout.pairs", {"run": TRAINING, "other": SECRET}
    yield "rollout.pairs", {"run": SECRET, "other": TRAINING}
    yield "run.logs", {"run": SECRET, "process": "worker", "attempt": 1}
    yield "run.logs", {"run": TRAINING, "process": f"../../{SECRET}/logs/attempt-1/worker"}
    yield "run.logs", {"run": TRAINING, "process": "cases"}
    for operation in ("run.show", "run.status", "run.results", "run.curves", "run.details"):
        yield operation, {"run": SECRET}
    yield "run.results", {"run": SECRET, "rows": 1000}
    yield "run.curves", {"run": SECRET, "points": 20000}
    yield "run.changes", {"run": SECRET, "metrics": 0, "events": 0}
    yield "run.trends", {"runs": [SECRET, TRAINING]}
    yield "run.wait", {"run": SECRET, "timeout": 0}
    yield "run.list", {"states": ["failed"]}
    yield "run.checkpoints", {"run": SECRET}
    yield "run.report", {"run": SECRET}


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_held_out_cases_stay_with_the_owner(folder: Path, role: Role) -> None:
    client = somebody(folder, role)
    calls = list(attempts())
    assert len(calls) >= 30
    for name, arguments in calls:
        answer = client.post(f"/api/{name}", json=arguments)
        assert "plum" not in answer.text.replace("plum.0.0", "").replace('"plum"', ""), name
    with client.stream("GET", f"/api/live?run={SECRET}") as live:
        assert "plum" not in "".join(live.iter_text())
    assert client.get(f"/report/{SECRET}").status_code == 403
    shown = client_of(owner_in(folder)).post("/api/rollout.list", json={"run": SECRET})
    assert HIDDEN in shown.text


def test_refusals_of_known_users_are_on_the_activity_log_and_capped(folder: Path) -> None:
    client = client_of(Caller(Role.VIEWER, folder / "runs", "insistent", folder=folder))
    for _ in range(100):
        assert client.post("/api/rollout.list", json={"run": SECRET}).status_code == 403
    log = ActivityLog(folder / "runs").path.read_text().splitlines()
    refused = [line for line in log if "rollout.list" in line and "refused" in line]
    assert refused
    assert len(refused) <= 61  # the rest of an hour is counted, not written
    assert "insistent" in refused[0]
