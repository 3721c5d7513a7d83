"""What in an agent cannot be played and learned from, found before the first token."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from agents import Agent, FunctionTool, Handoff

from sparring.contracts.errors import SettingError, Untrainable
from sparring.player.worlds import declares_tools


def refuse_untrainable(agent: Agent[Any]) -> None:
    """Raise with everything that is in the way, not only the first thing."""
    found = list(dict.fromkeys(obstacles(agent)))
    if found:
        listed = "\n".join(f"  - {obstacle}" for obstacle in found)
        raise Untrainable(f"the agent {agent.name!r} cannot be trained as it is:\n{listed}")


def refuse_several_rows(agent: Agent[Any]) -> None:
    """Raise where a rollout would be several sequences of tokens, which cannot be learned from
    yet: their shares in one reward are not decided."""
    nested = [tool.name for tool in agent.tools if getattr(tool, "_is_agent_tool", False)]
    handoffs = [
        target.name if isinstance(target, Agent) else target.agent_name for target in agent.handoffs
    ]
    if nested or handoffs:
        listed = ", ".join([*nested, *handoffs])
        raise Untrainable(
            f"the agent {agent.name!r} hands over to others ({listed}), so that one rollout has "
            "several rows; train these agents by themselves, each on cases of its own"
        )


def has_tools(agent: Agent[Any], context: object = None) -> bool:
    """Whether it is certain that the agent, or the world that it acts in, has any tools."""
    if agent.tools or agent.mcp_servers:
        return True
    return inspect.isclass(context) and declares_tools(context)


def refuse_without_tools(agent: Agent[Any], context: object = None) -> None:
    """A model of what tools answer needs tools that answer. What a context factory that is no
    class will return, nobody knows before it is called."""
    nobody_knows = context is not None and not inspect.isclass(context)
    if not nobody_knows and not has_tools(agent, context):
        raise SettingError(
            f"world_model_coefficient: the agent {agent.name!r} has no tools, so there are no "
            "tool results to learn to predict; leave it at 0, or give the agent tools"
        )


def obstacles(agent: Agent[Any]) -> Iterator[str]:
    """One line per obstacle, each with the way out, over all agents that can be reached."""
    seen: set[int] = set()
    waiting = [agent]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield from _of_agent(current)
        for tool in current.tools:
            yield from _of_tool(current, tool)
            nested = getattr(tool, "_agent_instance", None)
            if isinstance(nested, Agent):
                waiting.append(nested)
        for target in current.handoffs:
            reached = _target(target)
            if reached is not None:
                waiting.append(reached)


def _of_agent(agent: Agent[Any]) -> Iterator[str]:
    if agent.prompt is not None:
        yield (
            f"{agent.name}: a stored prompt lives on the provider's servers; "
            "write it into `instructions`"
        )


def _of_tool(agent: Agent[Any], tool: Any) -> Iterator[str]:
    if inspect.isfunction(tool):
        yield f"{agent.name}: {tool.__name__} is a plain function; decorate it with @function_tool"
        return
    if not isinstance(tool, FunctionTool):
        yield (
            f"{agent.name}: {tool.name} is hosted by the provider; "
            "replace it by a function tool of your own"
        )
        return
    if tool.needs_approval is not False:
        yield (
            f"{agent.name}: {tool.name} asks a person for approval, and nobody is there; "
            "pass needs_approval=False for training"
        )
    if tool.defer_loading:
        yield f"{agent.name}: {tool.name} is loaded by tool search; pass defer_loading=False"
    if getattr(tool, "_is_agent_tool", False) and _has_own_run_config(tool):
        yield (
            f"{agent.name}: {tool.name} runs an agent with a run config of its own, which would "
            "answer with another model; leave `run_config` out of as_tool()"
        )


def _has_own_run_config(tool: FunctionTool) -> bool:
    """`as_tool` keeps its run config in a closure; there is no public way to ask for it."""
    run = getattr(tool.on_invoke_tool, "_invoke_tool_impl", tool.on_invoke_tool)
    try:
        return inspect.getclosurevars(run).nonlocals.get("run_config") is not None
    except TypeError:
        return False


def _target(target: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | None:
    if isinstance(target, Agent):
        return target
    reference = target._agent_ref
    reached = reference() if reference is not None else None
    return reached if isinstance(reached, Agent) else None
