"""Tools under a deadline and a concurrency limit, on threads of ours.

The SDK hands its model the very list of tools that it will call afterwards. Governed
copies are put into that list, so that tools of nested agents, of handoffs and of MCP
servers are covered alike and the user's own tool objects are never touched.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

from agents import FunctionTool, Tool
from agents.tool_context import ToolContext

from sparring.contracts.limits import Limits
from sparring.contracts.rollouts import CallFailure, Ending, clean_text
from sparring.player.episode import EPISODE, EpisodeOver
from sparring.player.threads import CURRENT_CALL, ThreadUse, ToolThreads

Invoke = Callable[[ToolContext[Any], str], Awaitable[Any]]
_KEPT_COPIES = 4096


class ToolStage:
    """Governs the tools of all rollouts of one player."""

    def __init__(self, limits: Limits, threads: ToolThreads) -> None:
        self._limits = limits
        self._threads = threads
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._copies: dict[int, tuple[FunctionTool, FunctionTool]] = {}

    def govern(self, tools: list[Tool]) -> None:
        """Replace the function tools of this list by governed copies."""
        for number, tool in enumerate(tools):
            if isinstance(tool, FunctionTool):
                tools[number] = self._copy(tool)

    def _copy(self, tool: FunctionTool) -> FunctionTool:
        known = self._copies.get(id(tool))
        if known is not None and known[0] is tool:
            return known[1]
        governed = copy.copy(tool)
        governed.on_invoke_tool = self._governed(tool.name, tool.on_invoke_tool)
        if len(self._copies) >= _KEPT_COPIES:  # MCP servers make new tool objects each turn
            self._copies.clear()
        self._copies[id(tool)] = (tool, governed)
        return governed

    def _governed(self, name: str, invoke: Invoke) -> Invoke:
        async def invoke_governed(context: ToolContext[Any], arguments: str) -> Any:
            episode = EPISODE.get()
            if len(self._threads.hung()) >= self._limits.hung_threads:
                stuck = ", ".join(dict.fromkeys(self._threads.hung()))
                episode.end(
                    Ending.MACHINERY,
                    f"{self._limits.hung_threads} threads hang in {stuck}; make these tools give "
                    "up by themselves",
                )
                raise EpisodeOver
            use = ThreadUse(name)
            episode.nested_calls += 1
            token = CURRENT_CALL.set(use)
            try:
                async with (
                    self._slot(name),
                    episode.deadlines.within(self._limits.tool_seconds) as deadline,
                ):
                    result = await invoke(context, arguments)
            except TimeoutError:
                if not deadline.expired():
                    raise
                self._threads.give_up(use)
                episode.note_failure(context.tool_call_id, CallFailure.DEADLINE)
                return f"{name} gave no result within {self._limits.tool_seconds:g} seconds."
            finally:
                CURRENT_CALL.reset(token)
                episode.nested_calls -= 1
            if isinstance(result, str):
                result = clean_text(result)
            episode.note_result(context.tool_call_id, str(result))
            return result

        return invoke_governed

    def _slot(self, name: str) -> asyncio.Semaphore:
        if name not in self._slots:
            most = self._limits.tool_concurrency_by_name.get(name, self._limits.tool_concurrency)
            self._slots[name] = asyncio.Semaphore(most)
        return self._slots[name]
