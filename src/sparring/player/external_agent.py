"""Agents that another runner than the SDK's runs: programs that call the model by themselves."""

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
    """One rollout of an agent."""

    async def run(self, world: Any) -> Any:
        """Run the agent to its end and return its output; endings are recorded in the episode."""
        ...

    def rows(self) -> list[TokenRow]:
        """Return the rows to train on."""
        ...


class ExternalAgent(ABC):
    """An agent that brings its own loop. The player gives it an episode per rollout.

    `model` is the name of the model to play with where a run names none. `has_tools` is whether any
    rollout so far offered tools to the model.
    """

    name: str
    model: str | None = None
    tools: Sequence[Any] = ()
    has_tools: bool = False

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager that rollouts are played in."""

    @abstractmethod
    def begin(self, episode: Episode, policy: Policy, temperature: float) -> AgentRun:
        """Return the run of one rollout."""

    @abstractmethod
    def notes(self, temperature: float) -> list[str]:
        """Return what the rollouts played so far did that the user should know."""


PlayedAgent = Agent[Any] | ExternalAgent
