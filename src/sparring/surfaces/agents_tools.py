"""The operator tools for an agent of the openai-agents SDK that runs in the same process.

An agent that runs elsewhere, or in another language, uses `sparring mcp`.
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
    """Return tools that operate a project within its owner's limits.

    `name` identifies the operator in the activity log and in its runs.
    """
    folder = Path(project).resolve()
    caller = Caller(Role.OPERATOR, find_project(folder).runs, name, folder)
    return [_function_tool(tool, caller) for tool in tools_for(Role.OPERATOR).values()]


def _function_tool(tool: Tool, caller: Caller) -> FunctionTool:
    async def invoke(_: ToolContext[Any], arguments: str) -> str:
        """Call the tool. It refuses arguments that are not a JSON object as invalid input."""
        try:
            request = json.loads(arguments or "{}")
        except ValueError:
            request = None
        request = request if isinstance(request, dict) else {"arguments": arguments}
        answer = await asyncio.to_thread(tool.call, request, caller)
        return json.dumps(answer.table, ensure_ascii=False)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.input_schema(),
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )
