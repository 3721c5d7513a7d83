"""Builds a task from the arguments of the Python entry points: an agent with its suite and
measures, or an environment."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents import Agent, FunctionTool

from sparring.contracts.errors import InvalidInput
from sparring.environments import Environment
from sparring.environments.environment import Parts, read_agent, read_parts, read_suite
from sparring.gateway.agents import FunctionProgram, GatewayAgent, PlayFunction
from sparring.measures.declaration import Judge, Measure
from sparring.player.external_agent import ExternalAgent, PlayedAgent
from sparring.player.player import ContextFactory
from sparring.player.users import UserFunction
from sparring.policies.families import Family, family_named
from sparring.sandbox import probe
from sparring.suites import Suite

AnyAgent = PlayedAgent | Environment | PlayFunction
Measures = Sequence[Measure | str | Judge]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An agent with its suite and measures. `digest` identifies the agent; a run is not resumed
    with another agent."""

    agent: PlayedAgent
    suite: Suite
    measures: Measures
    weights: Mapping[str, float] | None = None
    context: ContextFactory | None = None
    user: UserFunction | None = None
    family: Family | None = None
    digest: str = ""


def read_task(
    agent: AnyAgent,
    suite: Suite | None,
    measures: Measures | None,
    *,
    weights: Mapping[str, float] | None = None,
    context: ContextFactory | None = None,
    user: UserFunction | None = None,
    family: Family | str | None = None,
    is_unsandboxed: bool = False,
) -> Task:
    """Check the arguments and return them as a task. An environment's parts replace missing
    arguments. Raises InvalidInput if the agent or the suite has a wrong type, or if a service of
    the environment has no address."""
    if not isinstance(agent, Environment):
        return Task(
            agent=played_agent(agent),
            suite=_checked_suite(suite),
            measures=() if measures is None else measures,
            weights=weights,
            context=context,
            user=user,
            family=as_family(family),
            digest=_digest(agent),
        )
    parts = _open(agent, suite, is_unsandboxed=is_unsandboxed)
    return Task(
        agent=parts.agent,
        suite=parts.suite,
        measures=parts.measures if measures is None else measures,
        weights=agent.weights if weights is None else weights,
        context=context or parts.world,
        user=user or parts.user,
        family=as_family(family) or agent.family,
        digest=_digest(agent),
    )


def as_family(family: Family | str | None) -> Family | None:
    """Return a family that is given as an object or by its name. Raises UnknownFamily."""
    return family_named(family) if isinstance(family, str) else family


def played_agent(agent: AnyAgent) -> PlayedAgent:
    """Return the agent for the player; a function becomes an agent behind the gateway."""
    if isinstance(agent, Agent | ExternalAgent):
        return agent
    if isinstance(agent, Environment):
        return read_agent(agent)
    if inspect.isclass(agent) and issubclass(agent, Environment):
        raise InvalidInput(f"pass an environment, not its class: {agent.__name__}()")
    if not callable(agent) or inspect.isclass(agent):
        raise InvalidInput(
            f"the agent must be an agents.Agent, an Environment or a function play(case, session), "
            f"not {agent!r}"
        )
    return GatewayAgent(getattr(agent, "__name__", "play"), FunctionProgram(agent))


def default_settings(agent: AnyAgent) -> dict[str, Any]:
    """Return the settings that an environment declares; none for other agents."""
    return dict(agent.settings) if isinstance(agent, Environment) else {}


def _open(environment: Environment, suite: Suite | None, *, is_unsandboxed: bool) -> Parts:
    """Read an environment's parts; raises if its sandbox or the address of a service is missing."""
    if environment.needs_sandbox and not is_unsandboxed:
        probe().require()
    environment.is_unsandboxed = is_unsandboxed
    missing = [
        service.name
        for service in environment.services
        if service.name not in environment.addresses
    ]
    if missing:
        raise InvalidInput(
            f"{type(environment).__name__} needs the services {', '.join(missing)}, which only the "
            "command line starts: use `sparring eval` and `sparring train`, or start them yourself "
            "and pass environment.add_addresses({'NAME': 'HOST:PORT'})"
        )
    return read_parts(environment, lambda: _suite_of(environment, suite))


def _suite_of(environment: Environment, suite: Suite | None) -> Suite:
    return read_suite(environment) if suite is None else _checked_suite(suite)


def _checked_suite(suite: Suite | None) -> Suite:
    if not isinstance(suite, Suite):
        raise InvalidInput(
            f"the suite must be a Suite, not {type(suite).__name__}; make one with "
            "Suite.from_records([{'input': …, 'expected': …}])"
        )
    return suite


def _digest(agent: AnyAgent) -> str:
    identity = json.dumps(_identity(agent), sort_keys=True, default=str)
    return hashlib.sha256(identity.encode()).hexdigest()


def _identity(agent: AnyAgent) -> list[Any]:
    """Return the values that identify an agent: for an SDK agent, name, instructions, model and
    tool schemas; for an environment, source and config; for a function, its source."""
    if isinstance(agent, Agent):
        return [
            agent.name,
            agent.instructions if isinstance(agent.instructions, str) else "(function)",
            agent.model if isinstance(agent.model, str) else "",
            [
                [tool.name, tool.description, tool.params_json_schema]
                for tool in agent.tools
                if isinstance(tool, FunctionTool)
            ],
        ]
    if isinstance(agent, Environment):
        return [_source(type(agent)), agent.config.model_dump(mode="json")]
    if isinstance(agent, ExternalAgent):
        return [agent.name, agent.model or ""]
    return [_source(agent)]


def _source(code: Any) -> str:
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):  # code typed into a console, or a callable object
        return getattr(code, "__qualname__", type(code).__qualname__)
