"""A team's server on loopback, in a thread of the test, and tokens for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.routing import Route

from sparring.operations.operation import Caller, Role
from sparring.operations.tokens import CreateToken, Tokens, create_token
from sparring.surfaces.web.app import Server, build_app
from sparring.surfaces.web.mcp_route import McpRoute
from sparring.surfaces.web.serving import bind
from sparring.surfaces.web.sessions import BrowserSessions, RateLimit


def token_for(project: Path, name: str, role: str) -> str:
    """A token that the owner of the project makes."""
    owner = Caller(Role.OWNER, project / "runs", folder=project)
    made = create_token(CreateToken.model_validate({"name": name, "role": role}), owner)
    return made.token


@contextmanager
def served(project: Path) -> Iterator[str]:
    """The address of a server for a project. It answers as fast as requests come."""
    bound = bind("127.0.0.1", 0)
    sessions = BrowserSessions(Tokens(project / "runs", project).caller_of)
    server = Server(sessions, bound.hosts, rate=RateLimit(1e9, 1e9))
    app = build_app(server, extra=[Route("/mcp", McpRoute(server))])
    running = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [bound.socket]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.port}"
    finally:
        running.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
