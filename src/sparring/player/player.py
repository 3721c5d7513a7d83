"""Plays many rollouts of one agent concurrently."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from inspect import Parameter
from itertools import count, islice
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.errors import error_text
from sparring.contracts.json import JsonObject
from sparring.contracts.policies import (
    Policy,
    TokenPolicy,
    is_played_in_lockstep,
    is_token_policy,
)
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.specs import Limits
from sparring.player.conversation import Reframe
from sparring.player.episode import EPISODE, Episode, EpisodeOver
from sparring.player.external_agent import AgentRun, ExternalAgent, PlayedAgent
from sparring.player.mcp_servers import connected_servers, has_servers
from sparring.player.nested_runs import route_nested_runs
from sparring.player.recorder import Recorder
from sparring.player.sdk_model import EpisodeModel
from sparring.player.sdk_run import SdkRun, UserFunction
from sparring.player.tools import ToolStage
from sparring.player.trainability import refuse_unplayable, warn_if_untested_version
from sparring.player.worlds import end_world
from sparring.threads import DaemonThreads
from sparring.tracebacks import error_with_line


class Slots:
    """A semaphore of `number` slots with priorities. A free slot goes to the waiting rollout of the
    lowest step, first come first served, so that no batch waits for a later one."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._arrivals = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def slot(self, step: int) -> AsyncIterator[None]:
        """Wait for a slot and hold it for the duration of the block."""
        await self._acquire(step)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, step: int) -> None:
        if self._free:  # a slot is free only if no rollout waits
            self._free -= 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (step, next(self._arrivals), granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # cancelled after the grant
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            _, _, granted = heapq.heappop(self._waiting)
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1


class SharedOpening:
    """Enters a context for the first user and exits it after the last.

    A dedicated task enters and exits the context: connections must be closed by the task that
    opened them, and overlapping batches end in any order.
    """

    def __init__(self, context: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._context = context
        self._users = 0
        self._over = asyncio.Event()
        self._opened: asyncio.Future[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Keep the context open for the duration of the block. An exception raised on entering the
        context is raised here."""
        if not self._users:
            loop = asyncio.get_running_loop()
            self._over, self._opened = asyncio.Event(), loop.create_future()
            self._keeper = loop.create_task(self._keep(self._keeper, self._opened, self._over))
        opened, keeper, over = self._opened, self._keeper, self._over
        self._users += 1
        try:
            assert opened is not None
            await asyncio.shield(opened)
            yield
        finally:
            self._users -= 1
            if not self._users:
                over.set()
                assert keeper is not None
                await asyncio.shield(keeper)

    async def _keep(
        self,
        before: asyncio.Task[None] | None,
        opened: asyncio.Future[None],
        over: asyncio.Event,
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        try:
            async with self._context():
                opened.set_result(None)
                await over.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)


ContextFactory = Callable[[], Any] | Callable[[Case], Any]


@dataclass(frozen=True, slots=True)
class Play:
    """A rollout to play: its key and its case."""

    key: RolloutKey
    case: Case


@dataclass(frozen=True, slots=True)
class Played:
    """A played rollout, its wall-clock duration, and whether the agent was offered tools."""

    rollout: Rollout
    seconds: float
    offers_tools: bool = False


class ConcurrentPlayer(ABC):
    """Plays rollouts concurrently.

    With a policy that samples in lockstep, rollouts are played in consecutive blocks of
    `limits.max_concurrency`, so that a replay after a crash gives the same batches and tokens. With
    any other policy, a rollout starts as soon as another ends. Several calls of `play` may then
    overlap: together they have at most `limits.max_concurrency` rollouts in flight, and rollouts of
    the lowest step start first.
    """

    def __init__(self, policy: Policy, limits: Limits) -> None:
        self._policy = policy
        self._limits = limits
        self._slots = Slots(limits.max_concurrency)

    async def play(self, plays: Iterable[Play]) -> AsyncGenerator[Played]:
        """Play the rollouts. Yield them in the order of `plays` in lockstep, else as they end. If
        the generator ends early, cancel the rest and end the worlds of the rollouts that were not
        yielded."""
        lockstep = self._policy if is_played_in_lockstep(self._policy) else None
        waiting = iter(plays)
        tasks: list[asyncio.Task[Played]] = []
        async with self._opened():
            try:
                while True:
                    if not tasks or not lockstep:
                        room = self._limits.max_concurrency - len(tasks)
                        tasks += self._start(list(islice(waiting, room)), lockstep)
                    if not tasks:
                        return
                    awaited = tasks[:1] if lockstep else tasks
                    done, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        tasks.remove(task)
                        yield task.result()
            finally:
                await _abandon(tasks)

    def _start(
        self, plays: Sequence[Play], lockstep: TokenPolicy | None
    ) -> list[asyncio.Task[Played]]:
        if lockstep is None:
            return [asyncio.create_task(self._roll_out_in_turn(play)) for play in plays]
        for _ in plays:
            lockstep.join()
        tasks = [asyncio.create_task(self._roll_out(play)) for play in plays]
        for task in tasks:  # a callback also runs for a task cancelled before its first step
            task.add_done_callback(lambda _: lockstep.leave())
        return tasks

    async def _roll_out_in_turn(self, play: Play) -> Played:
        async with self._slots.slot(play.key.step):
            return await self._roll_out(play)

    @abstractmethod
    async def _roll_out(self, play: Play) -> Played:
        """Play one rollout."""

    def _opened(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager to play in."""
        return nullcontext()


class Player(ConcurrentPlayer):
    """Plays one agent with one policy.

    `examples` are input items that every case's input begins with. `reframe` replaces what precedes
    the conversation in each prompt. An agent outside the SDK, which makes its own prompts, takes
    neither.
    """

    def __init__(
        self,
        agent: PlayedAgent,
        policy: Policy,
        *,
        limits: Limits | None = None,
        temperature: float = 0.8,
        context: ContextFactory | None = None,
        user: UserFunction | None = None,
        examples: Sequence[JsonObject] = (),
        reframe: Reframe | None = None,
    ) -> None:
        refuse_unplayable(agent)
        super().__init__(policy, limits or Limits())
        self._agent = _with_blocking_guardrails(agent)
        self._temperature = temperature
        self._context = as_case_factory(context)
        self._user = user
        self._examples = tuple(examples)
        self._reframe = reframe
        self._threads = DaemonThreads(self._limits.tool_threads)
        self._connections = SharedOpening(self._connected)
        codec = policy.codec if is_token_policy(policy) else None
        self._stage = ToolStage(self._limits, self._threads, codec)
        route_nested_runs()
        warn_if_untested_version()

    def hung_threads(self) -> list[str]:
        """Return the tool name of each thread that still runs although its call was abandoned."""
        return self._threads.hung()

    async def play_one(self, play: Play) -> Rollout:
        """Play one rollout and return it."""
        async with aclosing(self.play([play])) as stream:
            return (await anext(stream)).rollout

    def _opened(self) -> AbstractAsyncContextManager[None]:
        asyncio.get_running_loop().set_default_executor(self._threads)
        if isinstance(self._agent, ExternalAgent) or has_servers(self._agent, None):
            return self._connections.used()
        return nullcontext()

    def _connected(self) -> AbstractAsyncContextManager[None]:
        if isinstance(self._agent, ExternalAgent):
            return self._agent.opened()
        return connected_servers(self._agent)

    async def _roll_out(self, play: Play) -> Played:
        started = time.monotonic()
        episode = Episode(play.key, play.case, self._limits)
        EPISODE.set(episode)
        run = self._begin(episode)
        world = output = None
        try:
            async with episode.deadlines.within(self._limits.rollout_timeout) as deadline:
                world = await self._make_world(play.case, episode)
                output = await run.run(world)
        except EpisodeOver:
            pass
        except TimeoutError as error:
            if deadline.expired():
                limit = f"not finished within {self._limits.rollout_timeout:g} s"
                episode.end(Ending.ROLLOUT_DEADLINE, limit)
            else:
                episode.end(Ending.INFRASTRUCTURE_ERROR, f"TimeoutError: {error}")
        except Exception as error:  # from user code or the SDK: ends only this rollout
            episode.end(Ending.INFRASTRUCTURE_ERROR, error_text(error))
        except (
            asyncio.CancelledError
        ):  # a cancelled rollout is never judged, so its world ends here
            await asyncio.shield(end_world(world))
            raise
        rollout = episode.finish(run.rows(), world, output)
        return Played(rollout, time.monotonic() - started, episode.offers_tools)

    def _begin(self, episode: Episode) -> AgentRun:
        if isinstance(self._agent, ExternalAgent):
            return self._agent.begin(episode, self._policy, self._temperature)
        recorder = Recorder(self._policy, episode)
        model = EpisodeModel(episode, recorder, self._stage, self._temperature, self._reframe)
        return SdkRun(self._agent, episode, recorder, model, self._user, self._examples)

    async def _make_world(self, case: Case, episode: Episode) -> Any:
        try:
            return await self._context(case)
        except Exception as error:
            detail = f"creating the world failed: {error_with_line(error)}"
            episode.end(Ending.INFRASTRUCTURE_ERROR, detail)
            raise EpisodeOver from error


async def _abandon(tasks: Sequence[asyncio.Task[Played]]) -> None:
    """Cancel the tasks, wait for them, and end the worlds of the rollouts that have ended."""
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    worlds = [each.rollout.world for each in ended if isinstance(each, Played)]
    await asyncio.gather(*(end_world(world) for world in worlds))


def _with_blocking_guardrails(agent: PlayedAgent) -> PlayedAgent:
    """Return a copy of the agent whose input guardrails run before the first model call. By default
    the SDK runs both concurrently, and a guardrail that trips cancels the model call, whose batch
    other rollouts share."""
    if isinstance(agent, ExternalAgent) or not agent.input_guardrails:
        return agent
    blocking = [replace(guardrail, run_in_parallel=False) for guardrail in agent.input_guardrails]
    return agent.clone(input_guardrails=blocking)


def as_case_factory(factory: ContextFactory | None) -> Callable[[Case], Any]:
    """Return an async function that calls `factory` with the case, or without arguments if it takes
    none. Without a factory, the function returns None."""
    takes_case = factory is not None and _takes_argument(factory)

    async def make(case: Case) -> Any:
        if factory is None:
            return None
        context = factory(case) if takes_case else factory()  # type: ignore[call-arg]
        return await context if inspect.isawaitable(context) else context

    return make


def _takes_argument(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # dict and other builtins have no signature
        return False
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    first = next((each for each in parameters if each.kind in positional), None)
    if first is None:  # `*args` is that of a decorator
        has_rest = any(each.kind is Parameter.VAR_POSITIONAL for each in parameters)
        return has_rest and not inspect.isclass(factory)
    # A first parameter with a default, as in a dataclass or in `lambda path=path: …`, is not for
    # the case, unless its name says so.
    return first.default is Parameter.empty or first.name == "case"
