"""`sparring mcp`: the tools over the Model Context Protocol, on standard input and output.

The server holds nothing: runs go on without it, and plans are on disk. Whoever starts it says
who is at the other end; no call can change that.
"""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from sparring.operations.operation import Caller
from sparring.surfaces.tools.catalogue import (
    INSTRUCTIONS,
    Answer,
    Tool,
    refuse_unknown_tool,
    tools_for,
)

_SEATS = {"at once": 8, "asking": 8, "waiting": 64}


def serve(caller: Caller) -> None:
    """Until the other end closes."""
    anyio.run(_serve, caller)


async def _serve(caller: Caller) -> None:
    server = server_for(caller)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def server_for(caller: Caller) -> Server[Any]:
    tools = tools_for(caller.role)
    listed = [_listed(tool) for tool in tools.values()]
    limits: dict[str, anyio.CapacityLimiter] = {}

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        _: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = tools.get(params.name)
        seat = tool.seat if tool is not None else "at once"
        if seat not in limits:
            limits[seat] = anyio.CapacityLimiter(_SEATS[seat])
        work = partial(_called, tool, tools, params.name, params.arguments or {}, caller)
        answer = await anyio.to_thread.run_sync(
            work, limiter=limits[seat], abandon_on_cancel=seat == "waiting"
        )
        return _sent(answer)

    return Server(
        "sparring",
        version=version("sparring"),
        title="Sparring",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _called(
    tool: Tool | None, tools: dict[str, Tool], name: str, given: dict[str, Any], caller: Caller
) -> Answer:
    if tool is None:
        return refuse_unknown_tool(name, given, caller, tools)
    return tool.call(given, caller)


def _listed(tool: Tool) -> types.Tool:
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


def _sent(answer: Answer) -> types.CallToolResult:
    """The same table twice: for clients that read structure, and for those that read text."""
    text = json.dumps(answer.table, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=answer.table,
        is_error=answer.is_error,
    )
