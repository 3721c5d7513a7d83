"""Tools under a deadline and a concurrency limit, on threads of ours.

The SDK hands its model the very list of tools that it will call afterwards. Governed
copies are put into that list, so that tools of nested agents, of handoffs and of MCP
servers are covered alike and the user's own tool objects are never touched.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from agents import FunctionTool, Tool
from agents.tool_context import ToolContext

from sparring.contracts.limits import Limits
from sparring.contracts.rollouts import CallFailure, Ending, clean_text
from sparring.player.episode import EPISODE, Episode, EpisodeOver
from sparring.player.worlds import is_of_a_world
from sparring.threads import CURRENT_CALL, DaemonThreads, ThreadUse

Invoke = Callable[[ToolContext[Any], str], Awaitable[Any]]
_KEPT_COPIES = 4096
_CHARACTERS_PER_TOKEN = 16


class ToolStage:
    """Governs the tools of all rollouts of one player."""

    def __init__(self, limits: Limits, threads: DaemonThreads) -> None:
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
        if is_of_a_world(tool):  # made for one rollout; kept, it would keep its world alive
            governed = copy.copy(tool)
            governed.on_invoke_tool = self._governed(tool)
            return governed
        known = self._copies.get(id(tool))
        if known is not None and known[0] is tool:
            return known[1]
        governed = copy.copy(tool)
        governed.on_invoke_tool = self._governed(tool)
        if len(self._copies) >= _KEPT_COPIES:  # MCP servers make new tool objects each turn
            self._copies.clear()
        self._copies[id(tool)] = (tool, governed)
        return governed

    def _governed(self, tool: FunctionTool) -> Invoke:
        name, invoke = tool.name, tool.on_invoke_tool
        # An agent as tool waits for the model, and all others may be waiting for the same
        # wave: were it to hold a slot meanwhile, those without one would hold up the wave.
        takes_slot = not getattr(tool, "_is_agent_tool", False)

        async def invoke_governed(context: ToolContext[Any], arguments: str) -> Any:
            episode = EPISODE.get()
            self._refuse_when_too_many_hang(episode)
            use = ThreadUse(name)
            episode.open_calls += 1
            token = CURRENT_CALL.set(use)
            try:
                async with (
                    self._slot(name) if takes_slot else nullcontext(),
                    episode.deadlines.within(self._limits.tool_seconds) as deadline,
                ):
                    result = await invoke(context, arguments)
            except TimeoutError:
                if not deadline.expired():
                    raise
                episode.note_failure(context.tool_call_id, CallFailure.DEADLINE)
                return f"{name} gave no result within {self._limits.tool_seconds:g} seconds."
            except (SystemExit, KeyboardInterrupt) as error:
                raise RuntimeError(f"{name} raised {type(error).__name__}") from error
            finally:
                self._threads.give_up(use)
                CURRENT_CALL.reset(token)
                episode.open_calls -= 1
            if isinstance(result, str):
                result = _cut(clean_text(result), episode)
            episode.note_result(context.tool_call_id, str(result))
            return result

        # The SDK resolves these at every call; as objects they need no compiling.
        invoke_governed.__annotations__ = {"context": ToolContext, "arguments": str}
        return invoke_governed

    def _refuse_when_too_many_hang(self, episode: Episode) -> None:
        hung = self._threads.hung()
        if len(hung) < self._limits.hung_threads:
            return
        episode.end(
            Ending.MACHINERY,
            f"{len(hung)} threads hang in {', '.join(dict.fromkeys(hung))}; make these tools give "
            "up by themselves",
        )
        raise EpisodeOver

    def _slot(self, name: str) -> asyncio.Semaphore:
        if name not in self._slots:
            most = self._limits.tool_concurrency_by_name.get(name, self._limits.tool_concurrency)
            self._slots[name] = asyncio.Semaphore(most)
        return self._slots[name]


def _cut(result: str, episode: Episode) -> str:
    """A result that cannot fit into what is left of the budget is cut, and says so.

    Tokenising megabytes that end the rollout anyway would hold up all others.
    """
    most = _CHARACTERS_PER_TOKEN * max(episode.limits.completion_tokens - episode.spent, 512)
    if len(result) <= most:
        return result
    return f"{result[:most]}\n(cut off: {len(result):,} characters, {most:,} shown)"
