"""Worked examples: questions answered correctly, which every prompt of an agent begins with.

An example is written once, as the calls and the answer. The results of its calls are what the tools
return.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents import FunctionTool

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import JsonObject
from sparring.contracts.rollouts import ToolCall
from sparring.player.tools import call_tool
from sparring.threads import DaemonThreads, run_in_own_loop
from sparring.tracebacks import error_with_line

_CALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class WorkedCall:
    """A tool call of a worked example, as `call` returns it. `result` is None until it is made."""

    tool: FunctionTool | Callable[..., Any] | str
    arguments: Mapping[str, object]
    result: str | None = None

    @property
    def name(self) -> str:
        """The name of the tool."""
        if isinstance(self.tool, str):
            return self.tool
        name = getattr(self.tool, "name", None) or getattr(self.tool, "__name__", None)
        if not isinstance(name, str):
            raise InvalidInput(f"call() takes a tool, a function or a tool's name, not {self.tool}")
        return name

    def returning(self, result: str) -> WorkedCall:
        """Return the call with a stated result: the tool is not called for it."""
        return replace(self, result=result)


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """A question, the model's turns with tool calls, each with its parallel calls and their
    results, and the answer. `worked_example` makes one."""

    question: str
    turns: tuple[tuple[ToolCall, ...], ...]
    answer: str

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls, in order."""
        return tuple(made for turn in self.turns for made in turn)


def call(tool: FunctionTool | Callable[..., Any] | str, /, **arguments: object) -> WorkedCall:
    """Return a call of a worked example.

    `tool` is a tool of the agents SDK, a function, a method of a world, or a tool's name. Its
    result is what the tool returns for these arguments. For a tool that needs a world or a context,
    or is given by its name, state the result: `call("search", query="…").returning("…")`.
    """
    return WorkedCall(tool, arguments)


def worked_example(
    question: str, *calls: WorkedCall | Sequence[WorkedCall], answer: str
) -> WorkedExample:
    """Return a question with the tool calls that lead to its answer.

    Each of `calls` is a turn of the model; a list of calls is one turn with parallel calls. The
    tools are called here, once, in this order, each for at most 30 s. Raises InvalidInput if a tool
    raises an error, or needs a world.
    """
    turns = []
    for turn in calls:
        made = [turn] if isinstance(turn, WorkedCall) else list(turn)
        if not made or not all(isinstance(each, WorkedCall) for each in made):
            raise InvalidInput(
                f"the worked example {question!r} has {turn!r} among its calls; write each as "
                "call(tool, argument=…), or as a list of such calls"
            )
        turns.append(tuple(_made(each, question) for each in made))
    return WorkedExample(question, tuple(turns), answer)


def input_items(examples: Sequence[WorkedExample]) -> list[JsonObject]:
    """Return the examples as input items of the agents SDK. Their call ids depend on nothing but
    the order."""
    return [item for number, each in enumerate(examples, 1) for item in _items(each, number)]


def checked_examples(examples: Any, owner: str) -> tuple[WorkedExample, ...]:
    """Return the examples as a tuple; raise InvalidInput unless all are worked examples."""
    if not isinstance(examples, list | tuple) or not all(
        isinstance(each, WorkedExample) for each in examples
    ):
        raise InvalidInput(
            f"{owner} must be a list of worked examples, not {examples!r}; make each with "
            'worked_example("QUESTION", call(tool, argument=…), answer="ANSWER")'
        )
    return tuple(examples)


def _items(example: WorkedExample, number: int) -> Iterator[JsonObject]:
    yield {"role": "user", "content": example.question}
    made = 0
    for turn in example.turns:
        results: list[JsonObject] = []
        for each in turn:
            made += 1
            call_id = f"example_{number}_{made}"
            named = {"name": each.tool, "arguments": each.arguments}
            yield {"type": "function_call", "call_id": call_id, **named}
            results.append(
                {"type": "function_call_output", "call_id": call_id, "output": each.result}
            )
        yield from results
    yield {"role": "assistant", "content": example.answer}


def _made(worked: WorkedCall, question: str) -> ToolCall:
    try:
        arguments = json.dumps(dict(worked.arguments), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"the worked example {question!r}: the arguments of {worked.name} are not JSON: {error}"
        ) from error
    if worked.result is not None:
        return ToolCall("", worked.name, arguments, worked.result)
    shown = f"the worked example {question!r}: {worked.name}({arguments})"
    remedy = f"state its result with call({worked.name!r}, …).returning('…')"
    if isinstance(worked.tool, str):
        raise InvalidInput(f"{shown} has no result, because a name cannot be called; {remedy}")
    try:
        return ToolCall(
            "", worked.name, arguments, run_in_own_loop(_result(worked.tool, worked.arguments))
        )
    except TimeoutError as error:
        raise InvalidInput(
            f"{shown} gave no result within {_CALL_SECONDS:g} s; mend the tool, or {remedy}"
        ) from error
    except Exception as error:  # user code
        raise InvalidInput(
            f"{shown} failed: {error_with_line(error)}; correct the call or, if the tool needs a "
            f"world or a context, {remedy}"
        ) from error


async def _result(tool: FunctionTool | Callable[..., Any], arguments: Mapping[str, object]) -> str:
    asyncio.get_running_loop().set_default_executor(DaemonThreads(1))  # a hung call is abandoned
    async with asyncio.timeout(_CALL_SECONDS):
        return await call_tool(tool, arguments)
