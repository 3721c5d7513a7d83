"""The ASGI application: sign-in, the app's files, the API, and live updates."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.json import JsonObject
from sparring.operations.curves import Changes, ChangesQuery, run_changes
from sparring.operations.operation import Caller
from sparring.operations.report_page import BUNDLE
from sparring.operations.reporting import report_run
from sparring.operations.run_views import RunQuery
from sparring.runs.finding import find_run
from sparring.surfaces.web import calls, pages
from sparring.surfaces.web.live import LiveRuns
from sparring.surfaces.web.openapi import document
from sparring.surfaces.web.security import SecurityMiddleware
from sparring.surfaces.web.sessions import BrowserSessions, RateLimit

_LOG = logging.getLogger(__name__)
_POOL_SIZES = {"quick": 16, "environment": 8, "comparing": 2, "waiting": 64}
_SLOW_POOLS = ("environment", "comparing", "waiting")
_MAX_STREAMS = 256  # live streams of one caller
_MAX_BODY = 1_000_000
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Server:
    """The state of one server: sessions, live runs, rate limits and thread pools. Requests whose
    Host header is not in `hosts` are refused."""

    sessions: BrowserSessions
    hosts: tuple[str, ...]
    cookie: str = "sparring"
    is_https: bool = False
    live: LiveRuns = field(default_factory=LiveRuns)
    rate: RateLimit = field(default_factory=RateLimit)
    limits: dict[str, anyio.CapacityLimiter] = field(default_factory=dict)
    streams: Counter[str] = field(default_factory=Counter)

    def caller_of(self, request: Request) -> Caller | None:
        """Return the caller that the bearer token or cookie of a request identifies, or None."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            address, failures = _address(request), self.sessions.failures
            if failures.is_blocked(address):
                return None
            caller = self.sessions.caller_of_token(token.strip())
            if caller is None:
                failures.note(address)
                _LOG.warning("refused a token from %s", address)
            return caller
        return self.sessions.caller_of_cookie(request.cookies.get(self.cookie, ""))

    async def run(self, pool: str, work: Any, caller: Caller | None = None) -> Any:
        """Run blocking work in a thread of the given pool. In slow pools, each caller has separate
        threads, so that none can keep the others waiting."""
        name = f"{pool}/{caller.name}" if caller and pool in _SLOW_POOLS else pool
        if name not in self.limits:
            self.limits[name] = anyio.CapacityLimiter(_POOL_SIZES[pool])
        return await anyio.to_thread.run_sync(work, limiter=self.limits[name])


def build_app(server: Server, extra: Iterable[Route] = ()) -> Starlette:
    """Return the ASGI application of a server, with the `extra` routes."""
    routes = [
        Route("/enter", partial(_enter, server), methods=["GET", "POST"]),
        Route("/leave", partial(_leave, server), methods=["POST"]),
        Route("/api/openapi.json", partial(_openapi, server), methods=["GET"]),
        Route("/api/live", partial(_live, server), methods=["GET"]),
        Route("/api/session", partial(_session, server), methods=["GET"]),
        Route("/api/{operation:path}", partial(_operation, server), methods=["GET", "POST"]),
        Route("/report/{run}", partial(_report, server), methods=["GET"]),
        *extra,
        Route("/{path:path}", partial(_file, server), methods=["GET"]),
    ]
    middleware = [
        Middleware(SecurityMiddleware, hosts=server.hosts, is_https=server.is_https),
        Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5),
    ]
    return Starlette(routes=routes, middleware=middleware)


async def _enter(server: Server, request: Request) -> Response:
    """Exchange the secret of a link or a token for a cookie."""
    address = _address(request)
    if server.sessions.failures.is_blocked(address):
        return pages.message("Too many wrong tokens. Try again in a minute.", status=429)
    secret = request.query_params.get("token", "")
    if request.method == "POST":
        secret = await _form_token(request)
    elif not secret:
        return pages.sign_in(server.sessions.has_tokens, status=200)
    cookie = server.sessions.sign_in(secret)
    if not cookie:
        server.sessions.failures.note(address)
        _LOG.warning("refused a sign-in from %s", address)
        return pages.sign_in(server.sessions.has_tokens, status=401, is_wrong=True)
    response = RedirectResponse("/", status_code=303)
    response.set_cookie(
        server.cookie, cookie, httponly=True, samesite="strict", secure=server.is_https, path="/"
    )
    return response


async def _leave(server: Server, request: Request) -> Response:
    server.sessions.sign_out(request.cookies.get(server.cookie, ""))
    response = RedirectResponse("/enter", status_code=303)
    response.delete_cookie(server.cookie, path="/")
    return response


async def _session(server: Server, request: Request) -> Response:
    caller = server.caller_of(request)
    if caller is None:
        return _unauthorized(request)
    table = {
        "name": caller.name,
        "role": caller.role.name.lower(),
        "can_leave": server.sessions.has_tokens,
        "runs": str(caller.runs.absolute()),
    }
    return _json(200, json.dumps(table).encode())


async def _openapi(server: Server, request: Request) -> Response:
    caller = server.caller_of(request)
    if caller is None:
        return _unauthorized(request)
    if not server.rate.allows(caller.name):
        return _busy()
    return _json(200, _document())


@cache
def _document() -> bytes:
    return json.dumps(document()).encode()


async def _operation(server: Server, request: Request) -> Response:
    caller = server.caller_of(request)
    if caller is None:
        return _unauthorized(request)
    if not server.rate.allows(caller.name):
        return _busy()
    name = str(request.path_params["operation"])
    operation = calls.web_operations(caller.role).get(name)
    if operation is None:
        return _json(*await server.run("quick", partial(calls.refuse_unknown, name, caller)))
    try:
        if request.method == "GET":
            if operation.changes_state:
                return _json(405, b'{"error":{"type":"InvalidInput","message":"use POST"}}')
            arguments = calls.query_arguments(operation, request.query_params.multi_items())
        else:
            arguments = await _json_body(request)
    except SparringError as error:
        return _json(calls.status_of(error), calls.error_json(error))
    work = partial(calls.call, operation, arguments, caller)
    return _json(*await server.run(calls.pool_of(name), work, caller))


async def _live(server: Server, request: Request) -> Response:
    """Stream the changes of a run after the query's cursors, as server-sent events."""
    caller = server.caller_of(request)
    if caller is None:
        return _unauthorized(request)
    if not server.rate.allows(caller.name) or server.streams[caller.name] >= _MAX_STREAMS:
        return _busy()
    try:
        query = ChangesQuery.model_validate(dict(request.query_params))
        folder = await server.run("quick", partial(find_run, caller.runs, query.run))
    except SparringError as error:
        return _json(calls.status_of(error), calls.error_json(error))
    except ValueError as error:
        return _json(400, calls.error_json(InvalidInput(str(error).splitlines()[0])))

    async def read(wanted: ChangesQuery) -> tuple[Changes, bytes]:
        def work() -> tuple[Changes, bytes]:
            changes = run_changes(wanted, caller)
            return changes, calls.to_json(changes)

        answer: tuple[Changes, bytes] = await server.run("quick", work)
        return answer

    async def stream() -> AsyncIterator[bytes]:
        updates = server.live.follow(
            folder, caller.role, query.model_copy(update={"run": folder.id}), read
        )
        server.streams[caller.name] += 1
        try:
            async for text in updates:
                if server.caller_of(request) is None:
                    return  # signed out, or the token was revoked
                yield b": alive\n\n" if not text else b"data: " + text + b"\n\n"
            yield b"event: end\ndata: {}\n\n"
        finally:
            server.streams[caller.name] -= 1

    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)


async def _report(server: Server, request: Request) -> Response:
    """Respond with the report of a run, as a file to save; a browser runs none of it here."""
    caller = server.caller_of(request)
    if caller is None:
        return _unauthorized(request)
    if not server.rate.allows(caller.name):
        return _busy()
    run = str(request.path_params["run"])

    def work() -> tuple[int, bytes]:
        try:
            report = report_run(RunQuery(run=run), caller)
            return 200, Path(report.html).read_bytes()
        except (SparringError, OSError) as error:
            known = error if isinstance(error, SparringError) else SparringError(str(error))
            return calls.status_of(known), calls.error_json(known)

    status, body = await server.run("comparing", work, caller)
    if status != 200:
        return _json(status, body)
    headers = {"content-security-policy": "sandbox", "content-disposition": "attachment"}
    return Response(body, media_type="text/html", headers=headers)


async def _file(server: Server, request: Request) -> Response:
    """Respond with a file of the app's folder, by its exact name; subfolders are not served."""
    if server.caller_of(request) is None:
        return _unauthorized(request)
    name = str(request.path_params["path"]) or "index.html"
    path = _files().get(name)
    if path is None:
        return pages.message("There is no such page.", status=404)
    kind = _TYPES.get(path.suffix, "text/html")
    headers = {"cache-control": "no-cache"}
    return Response(path.read_bytes(), media_type=kind, headers=headers)


def _files() -> dict[str, Path]:
    return {path.name: path for path in BUNDLE.iterdir() if path.is_file()}


def _busy() -> Response:
    message = "too many requests; wait a second"
    return _json(429, json.dumps({"error": {"type": "Busy", "message": message}}).encode())


def _unauthorized(request: Request) -> Response:
    if request.url.path.startswith("/api/"):
        message = "sign in first: open the link that the server printed, or send a token"
        table = {"error": {"type": "NotPermitted", "message": message}}
        return _json(401, json.dumps(table).encode())
    return RedirectResponse("/enter", status_code=303)


async def _json_body(request: Request) -> JsonObject:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InvalidInput("send the arguments as application/json")
    try:
        value = json.loads(await _body(request) or b"{}")
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the body is not JSON") from error
    if not isinstance(value, dict):
        raise InvalidInput("the body must be a JSON object")
    return value


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY:
            raise InvalidInput(f"the body has more than {_MAX_BODY:,} bytes")
    return body


async def _form_token(request: Request) -> str:
    try:
        pairs = parse_qsl((await _body(request)).decode("utf-8", "replace"), max_num_fields=10)
    except (SparringError, ValueError):
        return ""
    return dict(pairs).get("token", "").strip()


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _json(status: int, body: bytes) -> Response:
    return Response(body, status_code=status, media_type="application/json")
