"""Every operation has a route; nothing is answered to somebody who is not signed in."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from sparring.operations.operation import Caller, Role
from sparring.operations.tokens import CreateToken, Tokens, create_token
from sparring.run_folder.events import append_state
from sparring.runs.lifecycle import RunState
from sparring.surfaces.web.app import Server, build_app
from sparring.surfaces.web.calls import web_operations
from sparring.surfaces.web.mcp_route import McpRoute
from sparring.surfaces.web.sessions import BrowserSessions
from tests.surfaces.web.viewed import (
    HOST,
    TRAINING,
    client_of,
    make_secret,
    make_training,
    owner_in,
    server_of,
)


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    make_training(tmp_path / "runs")
    make_secret(tmp_path / "runs")
    return client_of(owner_in(tmp_path))


def stranger(tmp_path: Path) -> TestClient:
    server, _ = server_of(owner_in(tmp_path))
    return TestClient(build_app(server), base_url=f"http://{HOST}", follow_redirects=False)


def test_the_app_and_its_files_are_served(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert 'src="./app.js"' in page.text
    assert client.get("/app.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/app.css").status_code == 200
    assert client.get("/nothing").status_code == 404


def test_reads_answer_to_get_and_post(client: TestClient) -> None:
    posted = client.post("/api/run.list", json={"count": 1})
    read = client.get("/api/run.list?count=1")
    assert posted.status_code == read.status_code == 200
    assert posted.json() == read.json()
    assert len(read.json()["runs"]) == 1
    states = client.get("/api/run.list?states=completed&states=queued").json()["runs"]
    assert [run["run"] for run in states] == [TRAINING]


def test_a_refusal_says_why_with_a_fitting_status(client: TestClient) -> None:
    missing = client.post("/api/run.show", json={"run": "nothing"})
    assert missing.status_code == 404
    assert "there is no run 'nothing'" in missing.json()["error"]["message"]
    assert client.post("/api/run.show", json={"wrong": 1}).status_code == 400
    assert client.post("/api/nothing.at_all", json={}).status_code == 404
    assert client.get("/api/run.stop?run=shop-1").status_code == 405
    assert client.post("/api/run.list", content=b"{").status_code == 400
    assert client.post("/api/run.list", content=b"[]").status_code == 400
    broken = {"content-type": "application/json"}
    assert client.post("/api/run.list", content=b"{", headers=broken).status_code == 400
    huge = json.dumps({"run": "x" * 2_000_000})
    assert client.post("/api/run.show", content=huge, headers=broken).status_code == 400


def test_a_bug_is_answered_with_500_and_the_server_keeps_serving(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparring.operations.runs.reconcile", lambda _: 1 / 0)
    broken = client.post("/api/run.list", json={})
    assert broken.status_code == 500
    assert "internal error (ZeroDivisionError)" in broken.json()["error"]["message"]
    monkeypatch.undo()
    assert client.post("/api/run.list", json={}).status_code == 200


def test_without_a_cookie_no_route_answers(tmp_path: Path) -> None:
    client = stranger(tmp_path)
    for name, each in web_operations().items():
        assert client.post(f"/api/{name}", json={}).status_code == 401
        assert client.get(f"/api/{name}").status_code == 401, each
    for path in ("/api/openapi.json", "/api/live?run=shop-1", "/api/session", "/api/none"):
        assert client.get(path).status_code == 401
    for path in ("/", "/app.js", "/app.css", "/icon.svg", "/report/shop-1", "/any/thing"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers.get("location")) == (303, "/enter")
    assert "sparring view" in client.get("/enter").text


def test_every_route_of_a_teams_server_wants_a_token(tmp_path: Path) -> None:
    make_training(tmp_path / "runs")
    server, _ = server_of(owner_in(tmp_path))
    app = build_app(server, extra=[Route("/mcp", McpRoute(server))])
    client = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert len(routes) == len(app.routes)  # nothing is mounted beside them
    count = 0
    for route in routes:
        path = re.sub(r"{[^}]*}", TRAINING, route.path)
        if path in ("/enter", "/leave"):
            continue  # they sign in and out
        for method in route.methods or ("GET", "POST", "DELETE", "PUT"):
            answer = client.request(method, path)
            is_sent_away = answer.headers.get("location") == "/enter"
            assert answer.status_code == 401 or is_sent_away, (method, path)
            assert TRAINING not in answer.text
            count += 1
    assert count >= 14
    assert client.post("/leave").headers["location"] == "/enter"


def test_guessed_bearer_tokens_are_slowed_down_like_links(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    owner = owner_in(tmp_path)
    made = create_token(CreateToken(name="vera", role="viewer"), owner)
    server = Server(BrowserSessions(Tokens(owner.runs, owner.folder).caller_of), (HOST,))
    client = TestClient(build_app(server), base_url=f"http://{HOST}", follow_redirects=False)

    def ask(token: str) -> int:
        headers = {"authorization": f"Bearer {token}"}
        return client.get("/api/run.list", headers=headers).status_code

    assert ask(made.token) == 200
    assert [ask(f"{made.token[:-1]}{n % 10}") for n in range(20)].count(401) >= 18
    for n in range(5):
        ask(f"guess{n}")
    assert ask(made.token) == 401  # a right guess gets the same answer as a wrong one


def test_a_link_signs_in_once(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    server, _ = server_of(owner_in(tmp_path))
    secret = server.sessions.new_link(owner_in(tmp_path))
    client = TestClient(build_app(server), base_url=f"http://{HOST}", follow_redirects=False)
    entered = client.get(f"/enter?token={secret}")
    assert entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/").status_code == 200
    client.post("/leave")
    assert client.get("/").status_code == 303
    again = client.get(f"/enter?token={secret}")
    assert again.status_code == 401
    assert secret not in again.text


def test_guessing_is_slowed_down(tmp_path: Path) -> None:
    client = stranger(tmp_path)
    codes = [client.get(f"/enter?token=guess{n}").status_code for n in range(25)]
    assert codes[:20] == [401] * 20
    assert codes[20:] == [429] * 5


def test_live_updates_send_only_what_is_new(tmp_path: Path) -> None:
    make_training(tmp_path / "runs")
    client = client_of(owner_in(tmp_path))
    curves = client.post("/api/run.curves", json={"run": TRAINING}).json()
    assert curves["steps"] == [1, 2, 3, 4]
    query = f"run={TRAINING}&metrics=0&events=0"
    with client.stream("GET", f"/api/live?{query}") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    first = json.loads(text.split("\n\n")[0].removeprefix("data: "))
    assert [row["step"] for row in first["rows"]] == [1, 2, 3, 4]
    assert first["has_ended"]
    assert text.rstrip().endswith("event: end\ndata: {}")
    query = f"run={TRAINING}&metrics={curves['cursor']}&events={curves['events_cursor']}"
    with client.stream("GET", f"/api/live?{query}") as answer:
        later = json.loads("".join(answer.iter_text()).split("\n\n")[0].removeprefix("data: "))
    assert later["rows"] == []
    assert later["new_events"] == []


def test_live_updates_refuse_what_is_not_there(client: TestClient) -> None:
    assert client.get("/api/live?run=nothing").status_code == 404
    assert client.get("/api/live?run=shop-1&metrics=-1").status_code == 400
    assert client.get("/api/live").status_code == 400


def test_a_report_is_a_file_to_save_and_runs_no_script_here(client: TestClient) -> None:
    report = client.get(f"/report/{TRAINING}")
    assert f"<title>{TRAINING}</title>" in report.text
    assert report.headers["content-security-policy"] == "sandbox"
    assert report.headers["content-disposition"] == "attachment"
    assert client.get("/report/nothing").status_code == 404


def test_somebody_else_sees_their_name_and_role(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    viewer = Caller(Role.VIEWER, tmp_path / "runs", "vera", folder=tmp_path)
    session = client_of(viewer).get("/api/session").json()
    assert (session["name"], session["role"]) == ("vera", "viewer")


def test_a_run_that_is_stopped_through_the_browser_is_stopped(tmp_path: Path) -> None:
    folder = make_training(tmp_path / "runs", "shop-2")
    client = client_of(owner_in(tmp_path))
    append_state(folder, RunState.QUEUED, author="owner", after=1)
    answer = client.post("/api/run.stop", json={"run": "shop-2"})
    assert answer.status_code == 200
    log = (tmp_path / "runs" / ".sparring" / "activity.jsonl").read_text()
    assert "run.stop" in log


@pytest.mark.parametrize(
    "path", ["/api/openapi.json", "/api/live?run=x", f"/report/{TRAINING}", "/api/run.list"]
)
def test_every_route_that_works_for_a_caller_counts_their_requests(
    tmp_path: Path, path: str
) -> None:
    server, cookie = server_of(owner_in(tmp_path))
    server.rate.burst = 0
    client = TestClient(build_app(server), base_url=f"http://{HOST}")
    client.cookies.set(server.cookie, cookie)
    assert client.get(path).status_code == 429


def test_slow_work_of_one_caller_leaves_the_threads_of_others_alone(tmp_path: Path) -> None:
    server, _ = server_of(owner_in(tmp_path))
    callers = [replace(owner_in(tmp_path), name=name) for name in ("ada", "bob")]

    async def work() -> None:
        for caller in callers:
            for pool in ("quick", "environment"):
                await server.run(pool, int, caller)

    asyncio.run(work())
    assert set(server.limits) == {"quick", "environment/ada", "environment/bob"}
