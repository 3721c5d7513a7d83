"""Agents outside the SDK: programs that run their own loop and call the model themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from agents import Agent

from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import TokenRow
from sparring.player.episode import Episode


class AgentRun(Protocol):
    """Runs an agent for one rollout."""

    async def run(self, world: Any) -> Any:
        """Run the agent to completion and return its output. If the rollout ends
        without an answer, record the ending in the episode and raise EpisodeOver, or raise the
        agent's own error."""
        ...

    def rows(self) -> list[TokenRow]:
        """Return the rows to train on."""
        ...


class ExternalAgent(ABC):
    """An agent that runs its own loop. The player passes it one episode per rollout.

    `model` is the name of the default model, used if a run names none. `has_tools` is true once a
    rollout has offered tools to the model.
    """

    name: str
    model: str | None = None
    tools: Sequence[Any] = ()
    has_tools: bool = False

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager to play rollouts in. It is shared by overlapping batches."""

    @abstractmethod
    def begin(self, episode: Episode, policy: Policy, temperature: float) -> AgentRun:
        """Return the run for one rollout; the caller starts it."""

    @abstractmethod
    def notes(self, temperature: float) -> list[str]:
        """Return remarks for the user on the rollouts played so far."""


PlayedAgent = Agent[Any] | ExternalAgent
