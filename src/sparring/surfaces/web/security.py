"""Refuses requests from other sites and for other hosts, and adds headers to every response.

The checks run before any route. A page of another site can make a browser send requests, with
cookies; it cannot choose their Host, Origin and Sec-Fetch-Site headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), browsing-topics=()",
    "cache-control": "no-store",
}


class SecurityMiddleware:
    """Middleware that refuses requests for unknown hosts and requests from other sites."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], *, is_https: bool = False) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._is_https = is_https

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request or pass it on, and add the headers to the response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers().items():
                    headers.setdefault(name, value)
            await send(message)

        if refusal := self.refusal_of(Headers(scope=scope)):
            response = PlainTextResponse(f"{refusal}\n", status_code=403)
            await response(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def refusal_of(self, headers: Headers) -> str:
        """Return the reason to refuse a request; empty if it is allowed."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return "this server does not accept that Host header; see `sparring serve --name`"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "requests from other sites are refused"
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin):
            return "requests from other sites are refused"
        return ""

    def _is_own(self, origin: str) -> bool:
        try:
            return urlsplit(origin).netloc.lower() in self._hosts
        except ValueError:
            return False

    def _headers(self) -> dict[str, str]:
        secure: dict[str, Any] = {"strict-transport-security": "max-age=31536000"}
        return {**_HEADERS, **(secure if self._is_https else {})}
