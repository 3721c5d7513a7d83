"""Per-rollout worlds: objects whose declared methods are tools for the time of one rollout.

Only what is declared becomes a tool. A world is what the context factory returns; measures
see it, in its final state, as `rollout.world`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from agents import FunctionTool
from agents.function_schema import FuncSchema, function_schema
from agents.tool_context import ToolContext
from pydantic import ValidationError

from sparring.contracts.errors import MachineryFailure
from sparring.contracts.rollouts import CallFailure
from sparring.player.arguments import argument_problems
from sparring.player.episode import EPISODE, EpisodeOver

Method = TypeVar("Method", bound=Callable[..., Any])
_DECLARED = "_sparring_tool"
_SECONDS_TO_END = 30.0
_LOG = logging.getLogger(__name__)
_SCHEMAS: WeakKeyDictionary[type, tuple[tuple[str, FuncSchema], ...]] = WeakKeyDictionary()


def tool(method: Method) -> Method:
    """Declare a method of a world as a tool; its docstring and types make the schema."""
    setattr(method, _DECLARED, True)
    return method


def world_tools(world: Any) -> list[FunctionTool]:
    """The tools of one world, bound to it; of those it offers, where it says which."""
    offered = getattr(world, "offered_tools", None)
    return [
        _bound(name, schema, world)
        for name, schema in _declared(type(world))
        if offered is None or name in offered
    ]


async def end_world(world: Any, seconds: float = _SECONDS_TO_END) -> None:
    """Call the world's `after_rollout` method, where it has one, once its rollout has been judged
    or will never be. One that raises or hangs is logged: the rollout is over by then, and others
    go on."""
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
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        _LOG.warning("after_rollout of %s: %s", type(world).__name__, told)


def declares_tools(kind: type) -> bool:
    """Whether worlds of this class have any."""
    return bool(_declared(kind))


def is_of_a_world(made: FunctionTool) -> bool:
    """Whether a tool belongs to one rollout's world."""
    return bool(getattr(made, _DECLARED, False))


def _declared(kind: type) -> tuple[tuple[str, FuncSchema], ...]:
    """Schemas are read from the class once, not for every rollout."""
    if kind not in _SCHEMAS:
        _SCHEMAS[kind] = _read(kind)
    return _SCHEMAS[kind]


def _read(kind: type) -> tuple[tuple[str, FuncSchema], ...]:
    return tuple(
        (name, function_schema(_without_self(method), name_override=name))
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if getattr(method, _DECLARED, False)
    )


def _without_self(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method as a plain function, for the SDK to read: `self` is not the model's to give."""
    signature = inspect.signature(method)
    rest = list(signature.parameters.values())[1:]

    def plain(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    plain.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
    plain.__annotations__ = dict(inspect.get_annotations(method, eval_str=True))
    plain.__doc__, plain.__name__ = method.__doc__, method.__name__
    return plain


def _bound(name: str, schema: FuncSchema, world: Any) -> FunctionTool:
    method = getattr(world, name)

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        try:
            given = schema.params_pydantic_model(**json.loads(arguments or "{}"))
        except (ValidationError, ValueError, TypeError) as error:
            told = argument_problems(arguments or "{}", schema.params_json_schema) or str(error)
            return _refusal(context, name, told)
        args, kwargs = schema.to_call_args(given)
        try:
            if inspect.iscoroutinefunction(method):
                return await method(*args, **kwargs)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, partial(method, *args, **kwargs))
        except (EpisodeOver, MachineryFailure):  # never the model's doing
            raise
        except Exception as error:  # as for any other tool: the model is told, and goes on
            return _refusal(context, name, f"{type(error).__name__}: {error}")

    made = FunctionTool(
        name=name,
        description=schema.description or "",
        params_json_schema=schema.params_json_schema,
        on_invoke_tool=invoke,
        strict_json_schema=schema.strict_json_schema,
    )
    setattr(made, _DECLARED, True)
    return made


def _refusal(context: ToolContext[Any], name: str, reason: str) -> str:
    """What the model reads when its call failed; in a rollout, it is noted as well."""
    if (episode := EPISODE.get(None)) is not None:
        episode.note_failure(context.tool_call_id, CallFailure.RAISED)
    return f"{name} failed: {' '.join(reason.split())[:500]}"
