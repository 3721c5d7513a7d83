"""Serves the app: to one person on this machine, or to a team."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.routing import Route

from sparring.contracts.errors import InvalidInput
from sparring.operations.operation import Caller
from sparring.operations.tokens import Tokens
from sparring.surfaces.web.app import Server, build_app
from sparring.surfaces.web.sessions import BrowserSessions

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A bound socket with its port."""

    socket: socket.socket
    port: int

    @property
    def hosts(self) -> tuple[str, ...]:
        """The Host headers that browsers send to this port on loopback."""
        return tuple(f"{host}:{self.port}" for host in _LOOPBACK)


@dataclass(frozen=True, slots=True)
class Binding:
    """The address of a team's server. `names` are the host names that browsers use for it."""

    address: str
    port: int
    names: tuple[str, ...] = ()
    certificate: str = ""
    key: str = ""
    is_behind_proxy: bool = False

    @property
    def is_https(self) -> bool:
        """Whether browsers connect over TLS, provided by the server or by a proxy."""
        return bool(self.certificate) or self.is_behind_proxy


def bind(host: str, port: int) -> BoundSocket:
    """Bind an address; port 0 picks a free port. Raises InvalidInput if it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise InvalidInput(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port or address"
        ) from error
    return BoundSocket(bound, int(bound.getsockname()[1]))


class LinkSessions(BrowserSessions):
    """Sessions of `sparring view`, which announce a new link after a failed sign-in."""

    def __init__(self, caller: Caller, announce: Callable[[str], None]) -> None:
        super().__init__()
        self._caller = caller
        self._announce = announce

    def sign_in(self, secret: str) -> str:
        """Exchange a link for a cookie. Announce a new link if this one is used or unknown."""
        cookie = super().sign_in(secret)
        if not cookie and not self.failures.is_blocked(""):
            self.failures.note("")  # limits new links to 20 a minute
            self._announce(self.new_link(self._caller))
        return cookie


def view(
    caller: Caller, port: int, announce: Callable[[str], None], on_start: Callable[[str], None]
) -> None:
    """Serve the app to the owner on loopback until interrupted.

    `announce` gets each sign-in link. `on_start` gets the first link once the server listens.
    """
    bound = bind("127.0.0.1", port)
    address = f"http://127.0.0.1:{bound.port}"
    sessions = LinkSessions(caller, lambda secret: announce(f"{address}/enter?token={secret}"))
    server = Server(sessions, bound.hosts, cookie=f"sparring-{bound.port}")
    first = f"{address}/enter?token={sessions.new_link(caller)}"
    announce(first)
    run_server(build_app(server), bound, on_ready=lambda: on_start(first), proxy_headers=False)


def serve(caller: Caller, binding: Binding, announce: Callable[[str], None]) -> None:
    """Serve a team until interrupted. Users sign in with a token of this project."""
    from sparring.surfaces.web.mcp_route import McpRoute

    is_local = binding.address in ("127.0.0.1", "::1", "localhost")
    if not (binding.is_https or is_local):
        raise InvalidInput(
            f"tokens would cross the network unencrypted on {binding.address}: pass --cert and "
            "--key, or --behind-proxy where a proxy adds TLS"
        )
    bound = bind(binding.address, binding.port)
    names = [*binding.names, *([] if binding.names and not is_local else _LOOPBACK)]
    hosts = {host for name in names for host in (name, f"{name}:{bound.port}")}
    tokens = Tokens(caller.runs, caller.folder)
    server = Server(
        BrowserSessions(tokens.caller_of), tuple(sorted(hosts)), is_https=binding.is_https
    )
    app = build_app(server, extra=[Route("/mcp", McpRoute(server))])
    scheme = "https" if binding.certificate else "http"
    announce(f"{scheme}://{names[0]}:{bound.port}")
    options: dict[str, Any] = {"proxy_headers": binding.is_behind_proxy}
    if binding.certificate:
        options |= {"ssl_certfile": binding.certificate, "ssl_keyfile": binding.key}
    run_server(app, bound, **options)


def run_server(
    app: Any,
    bound: BoundSocket,
    *,
    on_ready: Callable[[], None] = lambda: None,
    **options: Any,
) -> None:
    """Run uvicorn on a bound socket until it is interrupted."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=30,
        **options,
    )
    server = _ReadyServer(config, on_ready)
    server.run(sockets=[bound.socket])


class _ReadyServer(uvicorn.Server):
    """A server that calls `on_ready` when it accepts connections."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn logs an error for each live stream that is still open.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets=sockets)
