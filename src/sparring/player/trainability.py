"""Finds the obstacles to playing or training an agent before the first token is sampled."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

from agents import Agent, FunctionTool, Handoff, ModelSettings

from sparring.contracts.errors import SettingError, Untrainable
from sparring.player.external_agent import ExternalAgent, PlayedAgent
from sparring.player.worlds import declares_tools

_OLDEST_SDK, _NEWEST_SDK = (0, 22), (0, 24)  # tested


@functools.cache
def warn_if_untested_version() -> None:
    """Warn, once per process, if the installed SDK is outside the tested range."""
    installed = version("openai-agents")
    numbers = tuple(int(part) for part in installed.split(".")[:2] if part.isdigit())
    if not _OLDEST_SDK <= numbers <= _NEWEST_SDK:
        tested = " to ".join(".".join(map(str, bound)) for bound in (_OLDEST_SDK, _NEWEST_SDK))
        warnings.warn(
            f"Sparring is tested with openai-agents {tested}, but {installed} is installed; if "
            "something fails, install a tested version",
            RuntimeWarning,
            stacklevel=3,
        )


def refuse_unplayable(agent: PlayedAgent) -> None:
    """Raise Untrainable, with a list of all obstacles, if the agent cannot be played."""
    _refuse(agent, "played", obstacles(agent))


def refuse_untrainable(
    agent: PlayedAgent, temperature: float, train_agents: Sequence[str] = ()
) -> None:
    """Raise Untrainable, with a list of all obstacles, if the agent cannot be trained."""
    _refuse(agent, "trained", training_obstacles(agent, temperature, train_agents))


def training_obstacles(
    agent: PlayedAgent, temperature: float, train_agents: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the obstacles to training that can be read from the agent object, each as one line
    with its remedy. `trial_round` finds the others."""
    yield from obstacles(agent)
    if isinstance(agent, ExternalAgent):  # its agents are known only once they call the model
        return
    names = list(dict.fromkeys(reached.name for reached in reached_agents(agent)))
    if unknown := [name for name in train_agents if name not in names]:
        yield (
            f"train_agents: there is no agent {', '.join(map(repr, unknown))}; there are "
            f"{', '.join(map(repr, sorted(names)))}"
        )
    for reached in reached_agents(agent):
        for problem in _settings_obstacles(reached.model_settings, temperature):
            yield f"{reached.name}: {problem}"


def _refuse(agent: PlayedAgent, action: str, problems: Iterator[str]) -> None:
    if unique := list(dict.fromkeys(problems)):
        listed = "\n".join(f"  - {problem}" for problem in unique)
        raise Untrainable(f"the agent {agent.name!r} cannot be {action}:\n{listed}")


def has_tools(agent: PlayedAgent, context: object = None) -> bool:
    """Return whether the agent or a target of its handoffs has tools or MCP servers, or its world
    class declares some. False for an agent outside the SDK, whose tools are unknown."""
    if isinstance(agent, ExternalAgent):
        return False
    if any(each.tools or each.mcp_servers for each in reached_agents(agent)):
        return True
    return inspect.isclass(context) and (declares_tools(context) or hasattr(context, "mcp_servers"))


def refuse_without_tools(agent: PlayedAgent, context: object = None) -> None:
    """Raise SettingError if the agent has no tools, which echo_coefficient needs.

    Tools are unknown, and no error is raised, for an agent outside the SDK and for a context
    factory that is not a class.
    """
    is_unknown = context is not None and not inspect.isclass(context)
    is_unknown = is_unknown or isinstance(agent, ExternalAgent)
    if not is_unknown and not has_tools(agent, context):
        raise SettingError(
            f"echo_coefficient: the agent {agent.name!r} has no tools, so there are no "
            "tool results to learn to predict; leave it at 0, or give the agent tools"
        )


def obstacles(agent: PlayedAgent) -> Iterator[str]:
    """Yield the obstacles to playing the agent or any agent that it can reach."""
    for reached in reached_agents(agent):
        yield from _agent_obstacles(reached)
        for tool in reached.tools:
            yield from _tool_obstacles(reached, tool)


def reached_agents(agent: PlayedAgent) -> Iterator[Agent[Any]]:
    """Yield the agent, its handoff targets and its agent tools, recursively, each once. Yield
    nothing for an agent outside the SDK."""
    seen: set[int] = set()
    pending = [] if isinstance(agent, ExternalAgent) else [agent]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        nested = (getattr(tool, "_agent_instance", None) for tool in current.tools)
        pending += [each for each in nested if isinstance(each, Agent)]
        targets = (_target(target) for target in current.handoffs)
        pending += [each for each in targets if each is not None]


def _agent_obstacles(agent: Agent[Any]) -> Iterator[str]:
    if agent.prompt is not None:
        yield (
            f"{agent.name}: its prompt is stored on the provider's servers; "
            "write it into `instructions`"
        )


def _settings_obstacles(settings: ModelSettings, temperature: float) -> Iterator[str]:
    """Yield a message for each setting that training cannot apply. Training samples with the run's
    temperature, and without top_p and penalties."""
    if settings.temperature is not None and settings.temperature != temperature:
        yield (
            f"its temperature is {settings.temperature:g} and the run's is {temperature:g}; use "
            f"--set temperature={settings.temperature:g} for the run, or remove it from the agent"
        )
    for name, neutral in (("top_p", 1.0), ("frequency_penalty", 0.0), ("presence_penalty", 0.0)):
        value = getattr(settings, name)
        if value is not None and value != neutral:
            yield f"{name}={value:g} changes the sampling that training assumes; remove it"


def _tool_obstacles(agent: Agent[Any], tool: Any) -> Iterator[str]:
    if inspect.isfunction(tool):
        yield f"{agent.name}: {tool.__name__} is a plain function; decorate it with @function_tool"
        return
    if not isinstance(tool, FunctionTool):
        yield (
            f"{agent.name}: {tool.name} is hosted by the provider; "
            "replace it with your own function tool"
        )
        return
    if tool.needs_approval is not False:
        yield (
            f"{agent.name}: {tool.name} needs a person's approval, which a rollout cannot get; "
            "pass needs_approval=False for training"
        )
    if tool.defer_loading:
        yield f"{agent.name}: {tool.name} is loaded by tool search; pass defer_loading=False"
    if getattr(tool, "_is_agent_tool", False) and _names_a_model(tool):
        yield (
            f"{agent.name}: {tool.name} runs an agent whose run config names a model, which would "
            "answer instead of the policy; leave `model` out of the run_config of as_tool()"
        )


def _names_a_model(tool: FunctionTool) -> bool:
    """Return whether an agent tool's run config names a model. The SDK has no accessor for the run
    config, so it is read from the closure that `as_tool` creates."""
    run = getattr(tool.on_invoke_tool, "_invoke_tool_impl", tool.on_invoke_tool)
    try:
        config = inspect.getclosurevars(run).nonlocals.get("run_config")
    except TypeError:
        return False
    return config is not None and config.model is not None


def _target(target: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | None:
    if isinstance(target, Agent):
        return target
    reference = target._agent_ref
    agent = reference() if reference is not None else None
    return agent if isinstance(agent, Agent) else None
