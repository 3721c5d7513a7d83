"""Runs tools with a deadline, a concurrency limit and a token budget, on Sparring's threads.

The SDK passes its list of tools to the model and later calls the tools in the same list.
`ToolStage.govern` replaces each function tool in it with a governed copy, which enforces the
limits. This covers the tools of nested agents, handoff targets and MCP servers, and leaves the
user's tool objects unchanged.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from functools import cached_property
from typing import Any, NoReturn

from agents import FunctionTool, ItemHelpers, Tool, default_tool_error_function
from agents.run_config import ToolErrorFormatterArgs
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall

from sparring.contracts.errors import InvalidInput
from sparring.contracts.policies import Codec
from sparring.contracts.rollouts import CallFailure, Ending, Message, clean_text
from sparring.contracts.specs import Limits
from sparring.player.episode import EPISODE, Episode, EpisodeOver
from sparring.player.worlds import is_world_tool
from sparring.threads import CURRENT_CALL, DaemonThreads, ThreadUse

Invoke = Callable[[ToolContext[Any], str], Awaitable[Any]]
_MAX_COPIES = 4096
_CHARACTERS_PER_TOKEN = 4  # an estimate for chat policies, whose tokenizer is unknown
_SHORT_FACTOR = 8  # a result with at most 1/8 as many bytes as its limit in tokens is not tokenised
_NO_ROOM_TEXT = "(cut off)"
_ANY_CALL = ResponseFunctionToolCall(arguments="", call_id="", name="", type="function_call")


class _HeldSlot:
    """One of the slots that limit concurrent calls of a tool, held for the duration of the block or
    until `release`."""

    def __init__(self, semaphore: asyncio.Semaphore) -> None:
        self._semaphore = semaphore
        self._is_held = False

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()
        self._is_held = True
        self._reset_token = _HELD_SLOT.set(self)

    async def __aexit__(self, *_: object) -> None:
        _HELD_SLOT.reset(self._reset_token)
        self.release()

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._semaphore.release()


_HELD_SLOT: ContextVar[_HeldSlot | None] = ContextVar("sparring_held_slot", default=None)


def release_held_slot() -> None:
    """Release the slot of the current tool call before it runs a nested agent.

    The nested agent waits for a lockstep batch, and the batch waits for all rollouts, including
    rollouts that wait for the slot. Keeping the slot would deadlock.
    """
    if (held := _HELD_SLOT.get()) is not None:
        held.release()


class ToolStage:
    """Enforces deadlines, concurrency limits and the token budget on the tools of one player."""

    def __init__(self, limits: Limits, threads: DaemonThreads, codec: Codec | None = None) -> None:
        self._limits = limits
        self._codec = codec
        self._threads = threads
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        self._copies: dict[int, tuple[FunctionTool, FunctionTool]] = {}

    def govern(self, tools: list[Tool]) -> None:
        """Replace the function tools in this list, in place, with governed copies."""
        for index, tool in enumerate(tools):
            if isinstance(tool, FunctionTool):
                tools[index] = self._governed_copy(tool)

    def _governed_copy(self, tool: FunctionTool) -> FunctionTool:
        if is_world_tool(tool):  # not cached: the cache would keep the rollout's world alive
            governed = copy.copy(tool)
            governed.on_invoke_tool = self._governed_invoke(tool)
            return governed
        cached = self._copies.get(id(tool))
        if cached is not None and cached[0] is tool:
            return cached[1]
        governed = copy.copy(tool)
        governed.on_invoke_tool = self._governed_invoke(tool)
        if len(self._copies) >= _MAX_COPIES:  # MCP servers create new tool objects each turn
            self._copies.clear()
        self._copies[id(tool)] = (tool, governed)
        return governed

    def _governed_invoke(self, tool: FunctionTool) -> Invoke:
        name, invoke = tool.name, _invoke_recording_failures(tool)
        takes_slot = not getattr(tool, "_is_agent_tool", False)  # see release_held_slot

        async def invoke_governed(context: ToolContext[Any], arguments: str) -> Any:
            episode = EPISODE.get()
            if (refusal := episode.refusal_of(context.tool_call_id)) is not None:
                return refusal
            self._end_if_too_many_threads_hang(episode)
            use = ThreadUse(name)
            episode.open_calls += 1
            reset_token = CURRENT_CALL.set(use)
            try:
                async with (
                    _HeldSlot(self._semaphore_of(name)) if takes_slot else nullcontext(),
                    episode.deadlines.within(self._limits.tool_timeout) as deadline,
                ):
                    result = await invoke(context, arguments)
            except TimeoutError:
                if not deadline.expired():
                    raise
                episode.note_failure(context.tool_call_id, CallFailure.DEADLINE)
                return f"{name} gave no result within {self._limits.tool_timeout:g} seconds."
            except (SystemExit, KeyboardInterrupt) as error:
                raise RuntimeError(f"{name} raised {type(error).__name__}") from error
            finally:
                self._threads.give_up(use)
                CURRENT_CALL.reset(reset_token)
                episode.open_calls -= 1
            result = _join_text_parts(result)
            if (text := _text_of(result, tool)) is not None:
                shown = self._fit_budget(clean_text(text), episode)
                result = result if shown == text else shown
            episode.note_result(context.tool_call_id, str(result))
            return result

        # The SDK resolves annotations at every call; types are faster to resolve than strings.
        invoke_governed.__annotations__ = {"context": ToolContext, "arguments": str}
        return invoke_governed

    def _end_if_too_many_threads_hang(self, episode: Episode) -> None:
        hung = self._threads.hung()
        if len(hung) < self._limits.hung_threads:
            return
        episode.end(
            Ending.INFRASTRUCTURE_ERROR,
            f"{len(hung)} threads hang in {', '.join(dict.fromkeys(hung))}; add timeouts inside "
            "these tools",
        )
        raise EpisodeOver

    def _fit_budget(self, result: str, episode: Episode) -> str:
        """Return the result, truncated with a note if it exceeds `result_tokens` or, with its
        template, three quarters of the remaining token budget. The last quarter is reserved for
        the answer."""
        left = episode.limits.completion_tokens - episode.spent - episode.pending_tokens
        limit = left - left // 4 - self._template_tokens
        if episode.limits.result_tokens is not None:
            limit = min(limit, episode.limits.result_tokens)
        if _SHORT_FACTOR * len(result.encode()) <= limit:  # a token has at least one byte
            episode.pending_tokens += self._template_tokens + len(result.encode())
            return result
        shown = self._truncate(result, limit)
        if shown != result:
            note = "\n(cut off: {:,} characters, {:,} shown)"
            limit -= self._count_tokens(note.format(len(result), len(result)))
            shown = self._truncate(result, limit)
            note = note.format(len(result), len(shown))
            shown = f"{shown}{note}" if shown else _NO_ROOM_TEXT
        episode.pending_tokens += self._template_tokens + self._count_tokens(shown)
        return shown

    @cached_property
    def _template_tokens(self) -> int:
        """The number of tokens that the chat template adds around a result, including the next
        generation prompt."""
        if self._codec is None:
            return 0
        return len(self._codec.encode_continuation([Message("tool", "")]).ids)

    def _truncate(self, text: str, limit: int) -> str:
        if self._codec is None:
            return text[: _CHARACTERS_PER_TOKEN * max(limit, 0)]
        return self._codec.beginning(text, max(limit, 0))

    def _count_tokens(self, text: str) -> int:
        if self._codec is None:
            return len(text) // _CHARACTERS_PER_TOKEN
        return self._codec.tokens_in(text)

    def _semaphore_of(self, name: str) -> asyncio.Semaphore:
        if name not in self._semaphores:
            limit = self._limits.tool_concurrency_by_name.get(name, self._limits.tool_concurrency)
            self._semaphores[name] = asyncio.Semaphore(limit)
        return self._semaphores[name]


def _invoke_recording_failures(tool: FunctionTool) -> Invoke:
    """Return the tool's invoke function. If the tool has an error function, which converts
    exceptions into text, the returned function also records each exception in the rollout."""
    format_error = getattr(tool, "_failure_error_function", None)
    if getattr(tool, "_use_default_failure_error_function", False) and not formats_exceptions():
        format_error = default_tool_error_function
    bind = getattr(tool.on_invoke_tool, "__agents_bind_function_tool__", None)
    if format_error is None or bind is None:
        return tool.on_invoke_tool

    def record_and_format(context: Any, error: Exception) -> Any:
        EPISODE.get().note_failure(context.tool_call_id, CallFailure.RAISED)
        return format_error(context, error)

    recording = copy.copy(tool)
    recording._failure_error_function = record_and_format
    recording._use_default_failure_error_function = False
    bound: Invoke = bind(recording)
    return bound


async def call_tool(
    tool: FunctionTool | Callable[..., Any], arguments: Mapping[str, object]
) -> str:
    """Call a tool of the SDK, or a function, outside a rollout and without a context. Return the
    text that a model would read; raise what the tool raises."""
    if isinstance(tool, FunctionTool):
        text = json.dumps(dict(arguments))
        context = ToolContext(None, tool_name=tool.name, tool_call_id="", tool_arguments=text)
        result = await _raising_errors(tool)(context, text)
    elif inspect.iscoroutinefunction(tool):
        result = await tool(**arguments)
    else:
        result = await asyncio.to_thread(tool, **arguments)
    output = ItemHelpers.tool_call_output_item(_ANY_CALL, _join_text_parts(result))["output"]
    if not isinstance(output, str):
        raise InvalidInput("the result is not text, which is all that a model reads")
    return clean_text(output)


def _raising_errors(tool: FunctionTool) -> Invoke:
    """Return the tool's invoke function without its error function, which makes text of errors."""
    bind = getattr(tool.on_invoke_tool, "__agents_bind_function_tool__", None)
    if bind is None:
        return tool.on_invoke_tool

    def raise_error(_: Any, error: Exception) -> NoReturn:
        raise error

    raising = copy.copy(tool)
    raising._failure_error_function = raise_error
    raising._use_default_failure_error_function = False
    bound: Invoke = bind(raising)
    return bound


def formats_exceptions() -> bool:
    """Return whether the SDK passes tool exceptions to the run config's error formatter, as it does
    from version 0.24. Earlier versions format them internally."""
    return "tool_exception" in str(ToolErrorFormatterArgs.__annotations__["kind"])


def _text_of(result: Any, tool: FunctionTool) -> str | None:
    """Return the text that the SDK makes of a result. None for images and files, and for a result
    that must fit the tool's declared output, because a part of it would not."""
    if isinstance(result, str):
        return result
    if getattr(tool, "output_json_schema", None) is not None:  # not in all versions of the SDK
        return None
    output = ItemHelpers.tool_call_output_item(_ANY_CALL, result)["output"]
    return output if isinstance(output, str) else None


def _join_text_parts(result: Any) -> Any:
    """Return a list of text parts, as MCP servers return them, as one string; return any other
    result unchanged."""
    parts = [result] if isinstance(result, dict) else result
    if not isinstance(parts, list) or not parts:
        return result
    texts = [
        part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"
    ]
    if len(texts) == len(parts) and all(isinstance(text, str) for text in texts):
        return "".join(map(str, texts))
    return result
