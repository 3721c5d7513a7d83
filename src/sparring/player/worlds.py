"""Per-rollout worlds: objects whose methods are tools for one rollout.

Only methods declared with `@tool` become tools. The context factory returns the world; measures
read its final state as `rollout.world`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from agents import FunctionTool, Tool
from agents.function_schema import FuncSchema, function_schema
from agents.tool_context import ToolContext
from pydantic import ValidationError

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.rollouts import CallFailure
from sparring.player.episode import EPISODE, EpisodeOver
from sparring.player.tool_errors import argument_problems
from sparring.tracebacks import error_with_line

Method = TypeVar("Method", bound=Callable[..., Any])
_DECLARED = "_sparring_tool"
_END_SECONDS = 30.0
_LOG = logging.getLogger(__name__)
_SCHEMAS: WeakKeyDictionary[type, tuple[tuple[str, FuncSchema], ...]] = WeakKeyDictionary()


def tool(method: Method) -> Method:
    """Declare a method of a world as a tool; its docstring and types define the schema."""
    setattr(method, _DECLARED, True)
    return method


def world_tools(world: Any) -> list[FunctionTool]:
    """Return the tools of one world. If the world has `offered_tools`, only the tools named there
    are returned."""
    offered = getattr(world, "offered_tools", None)
    return [
        _bind(name, schema, world)
        for name, schema in _declared_schemas(type(world))
        if offered is None or name in offered
    ]


def add_world_tools(tools: list[Tool], context: Any) -> None:
    """Append the tools of the world `context` to an agent's own. Of tools with equal names,
    the agent's own remains."""
    names = {tool.name for tool in tools}
    tools += [added for added in world_tools(context) if added.name not in names]


async def end_world(world: Any, seconds: float = _END_SECONDS) -> None:
    """Call the world's `after_rollout()`, if defined. The caller has judged the rollout, or will
    not judge it. Errors and timeouts are logged, not raised, so that other rollouts continue."""
    after = getattr(world, "after_rollout", None)
    if after is None or not callable(after):
        return
    try:
        async with asyncio.timeout(seconds):
            if inspect.iscoroutinefunction(after):
                await after()
            else:
                await asyncio.get_running_loop().run_in_executor(None, after)
    except TimeoutError:
        _LOG.warning("after_rollout of %s took more than %g s", type(world).__name__, seconds)
    except Exception as error:  # user code
        _LOG.warning("after_rollout of %s: %s", type(world).__name__, error_with_line(error))


def declares_tools(kind: type) -> bool:
    """Return whether a class declares tools with `@tool`."""
    return bool(_declared_schemas(kind))


def is_world_tool(candidate: FunctionTool) -> bool:
    """Return whether a tool is a method of a world."""
    return bool(getattr(candidate, _DECLARED, False))


def _declared_schemas(kind: type) -> tuple[tuple[str, FuncSchema], ...]:
    """Return the tool schemas of a class. They are cached: worlds are created for every rollout."""
    if kind not in _SCHEMAS:
        _SCHEMAS[kind] = _read_schemas(kind)
    return _SCHEMAS[kind]


def _read_schemas(kind: type) -> tuple[tuple[str, FuncSchema], ...]:
    return tuple(
        (name, function_schema(_without_self(method), name_override=name))
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if getattr(method, _DECLARED, False)
    )


def _without_self(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stub with the method's signature without `self`, for the SDK's schema reader."""
    signature = inspect.signature(method)
    rest = list(signature.parameters.values())[1:]

    def plain(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    plain.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
    plain.__annotations__ = dict(inspect.get_annotations(method, eval_str=True))
    plain.__doc__, plain.__name__ = method.__doc__, method.__name__
    return plain


def _bind(name: str, schema: FuncSchema, world: Any) -> FunctionTool:
    method = getattr(world, name)

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        try:
            parsed = schema.params_pydantic_model(**json.loads(arguments or "{}"))
        except (ValidationError, ValueError, TypeError) as error:
            problem = argument_problems(arguments or "{}", schema.params_json_schema) or str(error)
            return _refusal(context, name, problem)
        args, kwargs = schema.to_call_args(parsed)
        try:
            if inspect.iscoroutinefunction(method):
                return await method(*args, **kwargs)
            return await asyncio.to_thread(method, *args, **kwargs)
        except (EpisodeOver, InfrastructureError):  # these end the rollout
            raise
        except Exception as error:  # the model reads the error, as it does for other tools
            return _refusal(context, name, f"{type(error).__name__}: {error}")

    bound = FunctionTool(
        name=name,
        description=schema.description or "",
        params_json_schema=schema.params_json_schema,
        on_invoke_tool=invoke,
        strict_json_schema=schema.strict_json_schema,
    )
    setattr(bound, _DECLARED, True)
    return bound


def _refusal(context: ToolContext[Any], name: str, reason: str) -> str:
    """Return the text that the model reads for a failed call; inside a rollout, record the
    failure."""
    if (episode := EPISODE.get(None)) is not None:
        episode.note_failure(context.tool_call_id, CallFailure.RAISED)
    return f"{name} failed: {' '.join(reason.split())[:500]}"
