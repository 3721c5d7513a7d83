"""The gateway's HTTP server, which runs in a separate thread with its own event loop.

Rollouts are played on another event loop. If an agent blocks that loop, its model call fails with
an error that names the cause. On a shared loop, the call would deadlock.
"""

from __future__ import annotations

import logging
import socket
import threading
import weakref
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from sparring.contracts.errors import InfrastructureError
from sparring.gateway.app import GatewayApp
from sparring.gateway.sessions import Sessions

_FIRST_BYTE_SECONDS = 15.0
_START_SECONDS = 30.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_EXPOSED = (
    "the gateway listens on %s: anyone who can reach this address and has a session's key can call "
    "the model until the session's rollout ends; the connection is not encrypted"
)
_LOG = logging.getLogger(__name__)


class GatewayServer:
    """Serves the open sessions on a loopback port, and on `unix_socket` if it is set.

    With a `host` other than loopback, other machines can reach the server, and it logs a warning.
    """

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 0, unix_socket: Path | None = None
    ) -> None:
        self.sessions = Sessions()
        if host not in _LOOPBACK:
            _LOG.warning(_EXPOSED, host)
        sockets = [_listen(host, port)]
        self.host, self.port = sockets[0].getsockname()[:2]
        if unix_socket is not None:
            sockets.append(_listen_unix(unix_socket))
        self._server = uvicorn.Server(
            uvicorn.Config(
                GatewayApp(self.sessions),
                http=_ImpatientProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=120,
                timeout_graceful_shutdown=1,
                proxy_headers=False,
                server_header=False,
                date_header=False,
            )
        )
        self._thread = threading.Thread(
            target=_serve, args=(self._server, sockets), name="sparring-gateway", daemon=True
        )
        self._thread.start()
        weakref.finalize(self, _stop, self._server)

    @property
    def address(self) -> str:
        """The server's URL, without a path."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def close(self) -> None:
        """Stop the server, and wait up to 30 seconds for its thread."""
        _stop(self._server)
        self._thread.join(timeout=_START_SECONDS)


def _stop(server: uvicorn.Server) -> None:
    server.should_exit = True


def _serve(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
    server.run(sockets=sockets)


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise InfrastructureError(
            f"the gateway cannot listen on {host}:{port}: {error}; choose another address"
        ) from error
    listening.listen(4096)
    return listening


def _listen_unix(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o666)  # sandboxes have other user ids; session keys control access
    listening.listen(4096)
    return listening


class _ImpatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Closes connections that have not sent a complete request head after 15 seconds."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(_FIRST_BYTE_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()
