"""`sparring mcp`: serves the tools over the Model Context Protocol, on standard input and output.

The server keeps no state: runs continue without it, and plans are on disk. The process that starts
it sets the caller's name and role; no call can change them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from sparring.contracts.json import JsonObject
from sparring.operations.operation import Caller
from sparring.surfaces.tools.catalogue import (
    INSTRUCTIONS,
    Tool,
    ToolAnswer,
    refuse_unknown_tool,
    tools_for,
)

_POOL_SIZES = {"quick": 8, "environment": 8, "comparing": 2, "waiting": 64}  # threads of each pool


def serve(caller: Caller) -> None:
    """Serve the tools to one client until it closes the connection."""
    anyio.run(_serve, caller)


async def _serve(caller: Caller) -> None:
    server = server_for(caller)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def server_for(caller: Caller) -> Server[Any]:
    """Return an MCP server whose every call is made as `caller`."""
    tools = tools_for(caller.role)
    listing = [_mcp_tool(tool) for tool in tools.values()]
    limits: dict[str, anyio.CapacityLimiter] = {}

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listing)

    async def call_tool(
        _: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = tools.get(params.name)
        pool = tool.pool if tool is not None else "quick"
        if pool not in limits:
            limits[pool] = anyio.CapacityLimiter(_POOL_SIZES[pool])
        work = partial(_call, tool, tools, params.name, params.arguments or {}, caller)
        if pool == "waiting":
            return _mcp_result(await _in_pool(work, limits[pool]))
        return _mcp_result(await anyio.to_thread.run_sync(work, limiter=limits[pool]))

    return Server(
        "sparring",
        version=version("sparring"),
        title="Sparring",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _in_pool(work: Callable[[], ToolAnswer], pool: anyio.CapacityLimiter) -> ToolAnswer:
    """Run `work` in a thread of `pool`; the call can be cancelled.

    The thread of a cancelled call runs to its end and keeps its place in the pool until then, so
    that a client that cancels calls never gets more threads than the pool has.
    """
    loop, place = anyio.lowlevel.current_token(), object()
    await pool.acquire_on_behalf_of(place)
    has_begun = False

    def run() -> ToolAnswer:
        nonlocal has_begun
        has_begun = True
        try:
            return work()
        finally:
            with suppress(RuntimeError):  # the server has ended
                anyio.from_thread.run_sync(pool.release_on_behalf_of, place, token=loop)

    try:
        return await anyio.to_thread.run_sync(
            run, limiter=anyio.CapacityLimiter(1), abandon_on_cancel=True
        )
    finally:
        if not has_begun:
            pool.release_on_behalf_of(place)


def _call(
    tool: Tool | None, tools: dict[str, Tool], name: str, arguments: JsonObject, caller: Caller
) -> ToolAnswer:
    if tool is None:
        return refuse_unknown_tool(name, arguments, caller, tools)
    return tool.call(arguments, caller)


def _mcp_tool(tool: Tool) -> types.Tool:
    operation = tool.operation
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema(),
        annotations=types.ToolAnnotations(
            title=tool.name.replace("_", " "),
            read_only_hint=not operation.changes_state,
            destructive_hint=operation.ends,
            idempotent_hint=operation.is_idempotent or not operation.changes_state,
            open_world_hint=False,
        ),
    )


def _mcp_result(answer: ToolAnswer) -> types.CallToolResult:
    """Return the answer twice: structured, and as text for clients that read only text."""
    text = json.dumps(answer.table, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=answer.table,
        is_error=answer.is_error,
    )
