"""Agents of any framework, played through the gateway."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from sparring.contracts.cases import Case
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Ending, TokenRow
from sparring.gateway.capture import Capture, Label
from sparring.gateway.server import GatewayServer
from sparring.gateway.sessions import Session
from sparring.player.episode import Episode, EpisodeOver
from sparring.player.external_agent import ExternalAgent
from sparring.threads import DaemonThreads

PlayFunction = Callable[[Case, Session], Awaitable[Any] | Any]
_MOST_THREADS = 65_536
_SECONDS_TO_END = 5.0
_CLIENT = (
    "pass session.base_url and session.api_key to the agent's client, and check that no other "
    "client calls a provider directly"
)
_NO_CALL = f"the agent ended without a model call; {_CLIENT}"


class Program(Protocol):
    """Runs the user's agent, once for each rollout."""

    async def run(self, session: Session) -> Any:
        """Run the agent and return its answer; None means the main agent's last reply."""
        ...

    async def close(self) -> None:
        """Release resources when all rollouts of a batch have ended."""
        ...


class FunctionProgram:
    """Calls the user's `play(case, session)`; a synchronous function runs in a thread."""

    def __init__(self, function: PlayFunction) -> None:
        self._function = function
        self._threads = DaemonThreads(_MOST_THREADS)

    async def run(self, session: Session) -> Any:
        """Call the function and return its result, awaited if necessary."""
        if inspect.iscoroutinefunction(self._function):
            return await self._function(session.case, session)
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._threads, self._function, session.case, session)
        return await result if inspect.isawaitable(result) else result

    async def close(self) -> None:
        """Do nothing: the next batch reuses the threads."""


class GatewayAgent(ExternalAgent):
    """An agent of any framework. One server, started for the first rollout, serves all rollouts.

    `label` names the agent that makes a call, for `train_agents`. An unlabelled call is "main"
    if its instructions, tools and output schema are those of the first unlabelled call, else
    "sub-agent".
    """

    def __init__(
        self,
        name: str,
        program: Program,
        *,
        model: str | None = None,
        label: Label | None = None,
        make_server: Callable[[], GatewayServer] = GatewayServer,
    ) -> None:
        self.name = name
        self.model = model
        self.program = program
        self._label = label
        self._make_server = make_server
        self._server: GatewayServer | None = None
        self._overridden: dict[str, set[float]] = {}

    @property
    def server(self) -> GatewayServer:
        """The server, started on first use."""
        if self._server is None:
            self._server = self._make_server()
        return self._server

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Enclose the rollouts of a batch, and close the program after them."""
        try:
            yield
        finally:
            await self.program.close()

    def begin(self, episode: Episode, policy: Policy, temperature: float) -> GatewayRun:
        """Return the run of one rollout, which has not started."""
        capture = Capture(episode, policy, temperature, self._label)
        return GatewayRun(self, episode, capture)

    def note_overridden(self, parameters: dict[str, set[float]]) -> None:
        """Record the sampling parameters of the agent's calls, which the run replaced."""
        for name, values in parameters.items():
            self._overridden.setdefault(name, set()).update(values)

    def notes(self, temperature: float) -> list[str]:
        """Return a note for each sampling parameter of the agent that differs from the run's."""
        own = {"temperature": temperature, "top_p": 1.0}
        notes = []
        for name, values in sorted(self._overridden.items()):
            other = sorted(values - {own.get(name, 0.0)})
            if other:
                listed = ", ".join(f"{value:g}" for value in other)
                notes.append(
                    f"the agent sets {name} to {listed}; rollouts are sampled with "
                    f"{own.get(name, 0.0):g}"
                )
        return notes


class GatewayRun:
    """One rollout of an agent behind the gateway."""

    def __init__(self, agent: GatewayAgent, episode: Episode, capture: Capture) -> None:
        self._agent = agent
        self._episode = episode
        self._capture = capture

    def rows(self) -> list[TokenRow]:
        """Return the token rows, discarded ones included; none for a chat policy."""
        return self._capture.rows()

    async def run(self, world: Any) -> Any:
        """Run the agent in a new session, close the session, and return the agent's output."""
        server, episode = self._agent.server, self._episode
        opened = server.sessions.open(self._capture)
        path = f"{server.address}/session/{opened.key}"
        session = Session(
            f"{path}/v1",
            path,
            opened.key,
            self._capture.model,
            episode.case,
            world,
            count_calls=lambda: self._capture.calls,
        )
        try:
            result = await self._run_program(session)
        except Exception as error:
            self._end_broken(error)
            return None
        finally:
            server.sessions.close(opened)
            self._agent.note_overridden(self._capture.overridden)
            self._agent.has_tools |= episode.offers_tools
        if not self._capture.calls:
            episode.end(Ending.NO_MODEL_CALL, _NO_CALL)
        return self._take_answer(result)

    async def _run_program(self, session: Session) -> Any:
        """Run the program to its end. Once a call is refused because the rollout has ended, the
        program has five seconds to return; then it is cancelled and EpisodeOver is raised. A
        function in a thread is abandoned, not stopped."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as deadline:

                def stop_soon() -> None:
                    if deadline.when() is None:
                        deadline.reschedule(loop.time() + _SECONDS_TO_END)

                self._capture.when_called_after_end = stop_soon
                try:
                    return await self._agent.program.run(session)
                finally:
                    self._capture.when_called_after_end = lambda: None
        except TimeoutError as error:
            if deadline.expired():
                raise EpisodeOver from error
            raise

    def _take_answer(self, result: Any) -> Any:
        episode = self._episode
        if result is None:
            return episode.answer
        if isinstance(result, str):
            episode.answer = result
        else:
            episode.answer = _as_text(result)
        return result

    def _end_broken(self, error: Exception) -> None:
        """Record the ending if the cause is known: no model call, or an unknown tool. Raises
        EpisodeOver if the rollout has already ended, otherwise the error."""
        episode, capture = self._episode, self._capture
        if episode.is_over:
            raise EpisodeOver from error
        if not capture.calls:
            episode.end(Ending.NO_MODEL_CALL, _cause_of(error))
        elif unknown := capture.unknown_tools():
            names = ", ".join(sorted(set(unknown)))
            episode.end(Ending.UNKNOWN_TOOL, f"the agent has no tool {names}")
        else:
            raise error


def _as_text(result: Any) -> str:
    dump = getattr(result, "model_dump", None)
    try:
        return json.dumps(dump(mode="json") if callable(dump) else result, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(result)


def _cause_of(error: Exception) -> str:
    """Return why an agent failed before its first model call, with a remedy if one is known."""
    cause = f"the agent failed before its first model call: {type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) or "ModuleNotFoundError" in str(error):
        return f"{cause}; install it where the agent runs, or set python = VENV"
    if "Connect" in type(error).__name__ or "Connect" in str(error):
        return f"{cause}; {_CLIENT}"
    return cause
