"""Playing many rollouts at once."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    RunErrorHandlerInput,
    RunErrorHandlers,
    Runner,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)

from sparring.contracts.cases import Case
from sparring.contracts.limits import Limits
from sparring.contracts.policies import Policy, is_played_in_waves
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.player.episode import EPISODE, Episode, EpisodeOver
from sparring.player.sdk_model import EpisodeModel, common_run_config
from sparring.player.tools import ToolStage
from sparring.player.trainability import refuse_untrainable
from sparring.player.voices import voice_for
from sparring.player.worlds import end_world, world_tools
from sparring.threads import DaemonThreads

ContextFactory = Callable[[], Any] | Callable[[Case], Any]


@dataclass(frozen=True, slots=True)
class Play:
    """One rollout to be played."""

    key: RolloutKey
    case: Case


@dataclass(frozen=True, slots=True)
class Played:
    """A rollout, and how long it took on the clock of this machine."""

    rollout: Rollout
    seconds: float


class Player:
    """Plays one agent with one policy.

    With a policy that plays in waves, rollouts go in blocks of `limits.in_flight`: a block
    is played by itself, so that replaying it after a crash gives the same batches and the
    same tokens. With a server, a new rollout starts as soon as one ends.
    """

    def __init__(
        self,
        agent: Agent[Any],
        policy: Policy,
        *,
        limits: Limits | None = None,
        temperature: float = 0.8,
        context: ContextFactory | None = None,
    ) -> None:
        refuse_untrainable(agent)
        self._agent = _with_blocking_guardrails(agent)
        self._policy = policy
        self._limits = limits or Limits()
        self._temperature = temperature
        self._context = taking_a_case(context)
        self._run_config = common_run_config()
        self._threads = DaemonThreads(self._limits.tool_threads)
        self._stage = ToolStage(self._limits, self._threads)

    def hung_threads(self) -> list[str]:
        """Tools whose threads outlived their deadline and have not returned yet."""
        return self._threads.hung()

    async def play(self, plays: Iterable[Play]) -> AsyncGenerator[Played]:
        """Play all; yields in the order of `plays` in waves, else as they finish."""
        asyncio.get_running_loop().set_default_executor(self._threads)
        waiting = iter(plays)
        if is_played_in_waves(self._policy):
            while block := list(islice(waiting, self._limits.in_flight)):
                async with aclosing(self._play_block(block)) as stream:
                    async for played in stream:
                        yield played
        else:
            async with aclosing(self._play_window(waiting)) as stream:
                async for played in stream:
                    yield played

    async def play_one(self, play: Play) -> Rollout:
        """Play a single rollout, as in a test or a chat."""
        async with aclosing(self.play([play])) as stream:
            return (await anext(stream)).rollout

    async def _play_block(self, block: list[Play]) -> AsyncGenerator[Played]:
        for _ in block:
            self._policy.join()  # type: ignore[union-attr]
        tasks = [asyncio.create_task(self._play(play)) for play in block]
        for task in tasks:  # also of a task that is cancelled before its first step
            task.add_done_callback(lambda _: self._policy.leave())  # type: ignore[union-attr]
        try:
            for task in tasks:
                yield await task
        finally:
            await _end(tasks)

    async def _play_window(self, waiting: Iterator[Play]) -> AsyncGenerator[Played]:
        running: set[asyncio.Task[Played]] = set()
        try:
            while True:
                room = self._limits.in_flight - len(running)
                running |= {asyncio.create_task(self._play(play)) for play in islice(waiting, room)}
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            await _end(list(running))

    async def _play(self, play: Play) -> Played:
        started = time.monotonic()
        episode = Episode(play.key, play.case, self._limits)
        EPISODE.set(episode)
        voice = voice_for(self._policy, episode, self._temperature)
        model = EpisodeModel(episode, voice, self._stage)
        world = output = None
        try:
            async with episode.deadlines.within(self._limits.rollout_seconds) as deadline:
                world = await self._make_world(play.case, episode)
                output = await self._run(episode, model, world)
        except EpisodeOver:
            pass
        except MaxTurnsExceeded:
            episode.end(Ending.TURN_LIMIT, f"no answer within {self._limits.turns} turns")
        except InputGuardrailTripwireTriggered as trip:
            episode.end(Ending.INPUT_GUARDRAIL, trip.guardrail_result.guardrail.get_name())
        except OutputGuardrailTripwireTriggered as trip:
            episode.end(Ending.OUTPUT_GUARDRAIL, trip.guardrail_result.guardrail.get_name())
        except (ToolInputGuardrailTripwireTriggered, ToolOutputGuardrailTripwireTriggered) as trip:
            episode.end(Ending.TOOL_GUARDRAIL, trip.guardrail.get_name())
        except TimeoutError as error:
            if deadline.expired():
                limit = f"no end within {self._limits.rollout_seconds:g} s"
                episode.end(Ending.ROLLOUT_DEADLINE, limit)
            else:
                episode.end(Ending.MACHINERY, f"TimeoutError: {error}")
        except Exception as error:  # user code and the SDK: one broken rollout ends no other
            episode.end(Ending.MACHINERY, f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:  # nobody will judge it
            await asyncio.shield(end_world(world))
            raise
        rollout = episode.finish(voice.rows(), world, output)
        return Played(rollout, time.monotonic() - started)

    async def _make_world(self, case: Case, episode: Episode) -> Any:
        try:
            return await self._context(case)
        except Exception as error:
            told = f"making the context failed: {type(error).__name__}: {error}"
            episode.end(Ending.MACHINERY, told)
            raise EpisodeOver from error

    async def _run(self, episode: Episode, model: EpisodeModel, world: Any) -> Any:
        def invalid_output(problem: RunErrorHandlerInput[Any]) -> Any:
            episode.end(Ending.INVALID_OUTPUT, str(problem.error))
            return {"final_output": episode.answer}

        handlers: RunErrorHandlers[Any] = {"invalid_final_output": invalid_output}
        result = await Runner.run(
            _own_copy(self._agent, world_tools(world)),
            episode.case.input,  # type: ignore[arg-type]
            context=world,
            max_turns=self._limits.turns,
            run_config=model.run_config(self._run_config),
            error_handlers=handlers,
        )
        if not isinstance(result.final_output, str):
            return result.final_output
        episode.answer = result.final_output  # a tool's result, under stop_on_first_tool
        return result.final_output


async def _end(tasks: list[asyncio.Task[Played]]) -> None:
    """End what still runs when the caller stops listening."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _own_copy(agent: Agent[Any], joining: Sequence[FunctionTool]) -> Agent[Any]:
    """An agent object for one rollout alone, over the same tools and those of its world.

    The SDK checks at every turn that no concurrent run of the same object has changed its
    tools, which costs time in proportion to all runs in flight: 2 ms a turn at 16 of them,
    6 ms at 1,024.
    """
    return agent.clone(tools=[*agent.tools, *joining])


def _with_blocking_guardrails(agent: Agent[Any]) -> Agent[Any]:
    """By default the SDK runs input guardrails beside the first model call, so that a trip
    would cancel a generation that others share."""
    if not agent.input_guardrails:
        return agent
    blocking = [replace(each, run_in_parallel=False) for each in agent.input_guardrails]
    return agent.clone(input_guardrails=blocking)


def taking_a_case(factory: ContextFactory | None) -> Callable[[Case], Any]:
    """A context factory of either form, as an async function of the case."""
    takes_case = factory is not None and _takes_an_argument(factory)

    async def make(case: Case) -> Any:
        if factory is None:
            return None
        made = factory(case) if takes_case else factory()  # type: ignore[call-arg]
        return await made if inspect.isawaitable(made) else made

    return make


def _takes_an_argument(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # dict and its like do not tell
        return False
    if not inspect.isclass(factory):
        return len(parameters) > 0
    # A class that can be made of nothing is: a dataclass with defaults, say.
    return any(
        each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in parameters
    )
