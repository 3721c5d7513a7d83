"""MCP over streamable HTTP, at `/mcp`: the tools of `sparring mcp`, with the token's role."""

from __future__ import annotations

from typing import Any

from mcp.server import Server as ToolServer
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from sparring.operations.operation import Caller
from sparring.surfaces.mcp import server_for
from sparring.surfaces.web.app import Server

_MAX_CALLERS = 1_000


class McpRoute:
    """The MCP route. It keeps no sessions: every request carries a token."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._tools: dict[Caller, ToolServer[Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. It must carry a bearer token; cookies are not accepted."""
        request = Request(scope, receive)
        is_bearer = request.headers.get("authorization", "").lower().startswith("bearer ")
        caller = self._server.caller_of(request) if is_bearer else None
        if caller is None:
            headers = {"www-authenticate": "Bearer"}
            message = "send a token of this project: Authorization: Bearer TOKEN"
            refused = JSONResponse({"error": message}, status_code=401, headers=headers)
            await refused(scope, receive, send)
            return
        if not self._server.rate.allows(caller.name):
            message = "too many requests; wait a second"
            busy = JSONResponse({"error": message}, status_code=429)
            await busy(scope, receive, send)
            return
        if caller not in self._tools:
            if len(self._tools) >= _MAX_CALLERS:
                self._tools.clear()
            self._tools[caller] = server_for(caller)
        manager = StreamableHTTPSessionManager(
            self._tools[caller], stateless=True, json_response=True
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)
