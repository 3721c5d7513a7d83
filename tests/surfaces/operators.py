"""An operator at the other end of each transport: `sparring mcp` in a process of its own, MCP over
HTTP with the official client, and the HTTP API."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from sparring.operations.operation import Role
from sparring.surfaces.tools.catalogue import tools_for
from tests.surfaces.web.served import served, token_for

Transport = Literal["stdio", "mcp over http", "http api"]
ROOT = Path(__file__).resolve().parents[2]


class Operator:
    """What an agent does with a client: call tools, wait for runs."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **given: Any) -> dict[str, Any]:
        """An answer that is no refusal."""
        reply = await self.ask(tool, given)
        assert not isinstance(reply.get("error"), dict), reply
        return reply

    async def refused(self, tool: str, **given: Any) -> dict[str, Any]:
        reply = await self.ask(tool, given)
        assert isinstance(reply.get("error"), dict), (
            f"{tool} {given} was not refused: {str(reply)[:300]}"
        )
        error: dict[str, Any] = reply["error"]
        return error

    async def ask(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        result = await self.client.call_tool(tool, given)
        text = result.content[0].text  # type: ignore[union-attr]
        assert json.loads(text) == result.structured_content
        if given.get("detail") != "full":
            assert len(text) < 4_000, f"{tool} says {len(text)} characters"
        assert result.is_error == isinstance(result.structured_content.get("error"), dict)
        return dict(result.structured_content)

    async def schemas(self) -> dict[str, Any]:
        """The schema of each tool's arguments."""
        listed = (await self.client.list_tools()).tools
        return {each.name: each.input_schema for each in listed}

    async def end_of(self, run: str) -> dict[str, Any]:
        """Its last news, by waiting for it."""
        since = silent = 0
        while True:
            news = await self.call("wait_for_run", run=run, since=since, timeout=45)
            if news["has_ended"]:
                return news
            silent = 0 if news["news"] else silent + 45
            assert silent < 180, f"{silent} seconds passed without news"
            since = news["cursor"]


class ApiOperator(Operator):
    """Calls the operation behind a tool by its route. A name that is no tool is a route, too."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.http = client
        self.operations = {name: each.operation for name, each in tools_for(Role.OWNER).items()}

    async def ask(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        operation = self.operations.get(tool)
        name = operation.name if operation is not None else tool
        if given.get("detail") == "full":  # an argument of tools only; the API shows everything
            given = {key: each for key, each in given.items() if key != "detail"}
        answer = await self.http.post(f"/api/{quote(name, safe='')}", json=given)
        reply: dict[str, Any] = answer.json()
        assert answer.is_success is not isinstance(reply.get("error"), dict)
        return reply

    async def schemas(self) -> dict[str, Any]:
        names = tools_for(Role.OPERATOR)
        return {name: self.operations[name].request.model_json_schema() for name in names}


@asynccontextmanager
async def operator(
    project: Path, name: str = "coach", role: str = "operator", over: Transport = "stdio"
) -> AsyncIterator[Operator]:
    if over == "stdio":
        async with Client(_stdio(project, name, role)) as client:
            yield Operator(client)
        return
    headers = {"authorization": f"Bearer {token_for(project, name, role)}"}
    with served(project) as address:
        if over == "http api":
            async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=90) as plain:
                yield ApiOperator(plain)
            return
        async with create_mcp_http_client(headers=headers) as http:
            transport = streamable_http_client(f"{address}/mcp", http_client=http)
            async with Client(transport) as client:
                yield Operator(client)


def _stdio(project: Path, name: str, role: str) -> StdioServerParameters:
    options = ["--project", str(project), "--as", name, "--role", role]
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "sparring", "mcp", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
