"""Routes nested runs of the SDK to the model of the outer run.

By default, `Runner.run` in a tool or a guardrail uses its own agent's model, normally a provider's.
Inside a rollout, or inside a run of a trained agent, it uses the outer run's model instead. A
nested run whose run config names another model is refused, because that model's provider would
answer and bill the call.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

from agents import Agent, Model, RunConfig, RunResult, RunResultStreaming
from agents.items import TResponseStreamEvent
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData
from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import JsonObject
from sparring.player.conversation import preceded
from sparring.player.tool_errors import ToolErrors


@dataclass(frozen=True, slots=True)
class ActiveAgent:
    """The name of the agent whose turn it is, and the context of its run."""

    agent: str
    context: Any


@dataclass(slots=True, eq=False)
class _OuterRun:
    """The outermost run: its model, and its event loop, which is set at the first model call at the
    latest."""

    model: RunModel
    loop: asyncio.AbstractEventLoop | None = None


_OUTER_RUN: ContextVar[_OuterRun | None] = ContextVar("sparring_outer_run", default=None)
ACTIVE_AGENT: ContextVar[ActiveAgent] = ContextVar(
    "sparring_active_agent",
    default=ActiveAgent("", None),  # noqa: B039
)


class RunModel(Model):
    """A model that answers for every agent of a run, including handoffs and nested runs. The input
    of the outermost run begins with the items of `examples`."""

    def __init__(self, errors: ToolErrors, examples: Sequence[JsonObject] = ()) -> None:
        self._errors = errors
        self._examples = tuple(examples)

    def opening(self, options: dict[str, Any], given: Any) -> Any:
        """Return the input of an outermost run with the examples before it. With a session, a
        filter in the run config of `options` puts them before its history: they are not stored."""
        if options.get("session") is None:
            return preceded(self._examples, given)
        config: RunConfig = options["run_config"]
        config.call_model_input_filter = _preceding(self._examples, config.call_model_input_filter)
        return given

    def run_config(self, given: RunConfig | None) -> RunConfig:
        """Return a copy of `given`, or a new run config, that uses this model."""
        config = copy.copy(given) if given is not None else RunConfig()
        config.model = self
        config.tool_not_found_behavior = "return_error_to_model"
        config.call_model_input_filter = recording_active_agent(config.call_model_input_filter)
        config.tool_error_formatter = self._errors.formatter(config.tool_error_formatter)
        return config

    def nested(self) -> AbstractContextManager[None]:
        """Return a context manager to execute one nested run in."""
        return nullcontext()

    def refuse_escape(self, message: str) -> NoReturn:
        """Raise InvalidInput: a nested run names another model."""
        raise InvalidInput(message)

    async def stream_response(
        self, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Yield the whole reply as one event: a policy returns a turn only when it is complete."""
        response = await self.get_response(*args, **kwargs)
        usage = response.usage
        yield ResponseCompletedEvent(
            type="response.completed",
            sequence_number=0,
            response=Response(
                id=f"resp_{secrets.token_hex(8)}",
                created_at=time.time(),
                model="sparring",
                object="response",
                output=response.output,
                parallel_tool_calls=True,
                tool_choice="auto",
                tools=[],
                usage=ResponseUsage(
                    input_tokens=usage.input_tokens,
                    input_tokens_details=InputTokensDetails.model_construct(cached_tokens=0),
                    output_tokens=usage.output_tokens,
                    output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
                    total_tokens=usage.total_tokens,
                ),
            ),
        )


def recording_active_agent(then: CallModelInputFilter | None) -> CallModelInputFilter:
    """Return an input filter that sets `ACTIVE_AGENT` and then applies `then`. The SDK passes the
    agent to filters, but not to the model."""

    async def record(data: CallModelData[Any]) -> ModelInputData:
        ACTIVE_AGENT.set(ActiveAgent(data.agent.name, data.context))
        if (outer := _OUTER_RUN.get()) is not None and outer.loop is None:
            outer.loop = asyncio.get_running_loop()
        return await _filtered(data, then)

    return record


def _preceding(
    examples: Sequence[JsonObject], then: CallModelInputFilter | None
) -> CallModelInputFilter:
    """Return an input filter that applies `then`, and puts the examples before each input."""

    async def precede(data: CallModelData[Any]) -> ModelInputData:
        filtered = await _filtered(data, then)
        return ModelInputData(preceded(examples, filtered.input), filtered.instructions)

    return precede


async def _filtered(data: CallModelData[Any], by: CallModelInputFilter | None) -> ModelInputData:
    if by is None:
        return data.model_data
    filtered = by(data)
    return await filtered if inspect.isawaitable(filtered) else filtered


def route_nested_runs() -> None:
    """Wrap the SDK's default runner, once per process, so that nested runs use the outer model."""
    current = get_default_agent_runner()
    if not isinstance(current, _Runner):
        set_default_agent_runner(_Runner(current))


@contextmanager
def outer_run(model: RunModel, loop: asyncio.AbstractEventLoop | None) -> Iterator[None]:
    """Make a run of this model the outer run of every run that starts inside the block. If `loop`
    is None, it is that of the first model call."""
    token = _OUTER_RUN.set(_OuterRun(model, loop))
    try:
        yield
    finally:
        _OUTER_RUN.reset(token)


@contextmanager
def outermost_runner(model: RunModel) -> Iterator[AgentRunner]:
    """Yield the runner to start a run of this model with: the SDK's own, or one that somebody has
    set since, which reaches ours by itself. The run is the outer run in both cases."""
    runner = get_default_agent_runner()
    if not isinstance(runner, _Runner):
        yield runner
        return
    with outer_run(model, asyncio.get_running_loop()):
        yield runner.inner


class _Runner(AgentRunner):
    """Runs agents with `inner`; nested runs use the model and the event loop of the outer run."""

    def __init__(self, inner: AgentRunner) -> None:
        self.inner = inner

    async def run(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        outer = _OUTER_RUN.get()
        loop = asyncio.get_running_loop()
        if outer is not None and outer.loop not in (None, loop):  # called from a tool's thread
            work = self.run(starting_agent, input, **options)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, outer.loop))
        with _using_outer_model(starting_agent, options, loop, input) as given:
            return await self.inner.run(starting_agent, given, **options)

    def run_sync(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        outer = _OUTER_RUN.get()
        if outer is not None and outer.loop is not None:
            work = self.run(starting_agent, input, **options)
            return asyncio.run_coroutine_threadsafe(work, outer.loop).result()
        with _using_outer_model(starting_agent, options, None, input) as given:
            return self.inner.run_sync(starting_agent, given, **options)

    def run_streamed(
        self, starting_agent: Agent[Any], input: Any, **options: Any
    ) -> RunResultStreaming:
        with _using_outer_model(starting_agent, options, None, input) as given:
            return self.inner.run_streamed(starting_agent, given, **options)  # its task copies it


@contextmanager
def _using_outer_model(
    agent: Agent[Any],
    options: dict[str, Any],
    loop: asyncio.AbstractEventLoop | None,
    given: Any,
) -> Iterator[Any]:
    """Put the outer run's model into the run config of `options`, and yield the run's input.
    Without an outer run, this run becomes the outer run for the duration of the block if its model
    is a RunModel, and its input begins with the model's examples."""
    outer = _OUTER_RUN.get()
    config = options.get("run_config")
    if isinstance(config, dict):
        config = RunConfig(**config)
    named_model = config.model if config is not None else None
    if outer is None:
        model = agent.model if named_model is None else named_model
        block: AbstractContextManager[Any] = nullcontext()
        if isinstance(model, RunModel):
            block = outer_run(model, loop)
    else:
        model = outer.model
        if named_model is not None and named_model is not model:
            model.refuse_escape(
                f"a nested run of the agent {agent.name!r} names the model {_name_of(named_model)} "
                "in its run config, which would answer and bill outside Sparring; leave the "
                "model out"
            )
        block = model.nested()
    if named_model is None and isinstance(model, RunModel):
        options["run_config"] = model.run_config(config)
    elif isinstance(model, RunModel):
        options["run_config"] = copy.copy(config)
    if outer is None and isinstance(model, RunModel):
        given = model.opening(options, given)
    with block:
        yield given


def _name_of(model: str | Model) -> str:
    return repr(model) if isinstance(model, str) else type(model).__name__
