"""The same tools for an agent of the openai-agents SDK, in its own process.

For an agent that runs elsewhere, or in another language, there is `sparring mcp`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from agents import FunctionTool
from agents.tool_context import ToolContext

from sparring.operations.operation import Caller, Role
from sparring.projects import find_project
from sparring.surfaces.tools.catalogue import Tool, tools_for


def operator_tools(project: str | Path = ".", name: str = "operator") -> list[FunctionTool]:
    """Tools that operate a project inside the limits that its owner set, on record as `name`."""
    folder = Path(project).resolve()
    caller = Caller(Role.OPERATOR, find_project(folder).runs, name, folder)
    return [_tool(tool, caller) for tool in tools_for(Role.OPERATOR).values()]


def _tool(tool: Tool, caller: Caller) -> FunctionTool:
    async def invoke(_: ToolContext[Any], arguments: str) -> str:
        """What the model wrote may be no JSON at all, and is refused like any other mistake."""
        try:
            given = json.loads(arguments or "{}")
        except ValueError:
            given = None
        given = given if isinstance(given, dict) else {"arguments": arguments}
        answer = await asyncio.to_thread(tool.call, given, caller)
        return json.dumps(answer.table, ensure_ascii=False)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.input_schema(),
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )
