"""Connects an agent's MCP servers while it is being played."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from agents import Agent
from agents.mcp import MCPServer, MCPServerManager, MCPToolCustomDataContext

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.rollouts import CallFailure
from sparring.player.episode import EPISODE
from sparring.player.external_agent import PlayedAgent
from sparring.player.trainability import reached_agents


@asynccontextmanager
async def connected_servers(agent: Agent[Any]) -> AsyncIterator[None]:
    """Connect the servers of the agent and of all agents that it can reach, for the duration of the
    block. Servers that are already connected stay connected after it."""
    servers = [server for reached in reached_agents(agent) for server in reached.mcp_servers]
    async with _connected(servers):
        yield


@asynccontextmanager
async def rollout_servers(world: Any) -> AsyncIterator[list[MCPServer]]:
    """Connect and yield the servers that the world's `mcp_servers()` returns; close them after the
    block. Yield an empty list if the world has no such method."""
    declared = getattr(world, "mcp_servers", None)
    if declared is None:
        yield []
        return
    given = declared()
    servers = list(await given if inspect.isawaitable(given) else given)
    async with _connected(servers):
        yield servers


def has_servers(agent: PlayedAgent, world: Any) -> bool:
    """Return whether the agent, an agent that it can reach, or the world has MCP servers."""
    own = any(reached.mcp_servers for reached in reached_agents(agent))
    return own or getattr(world, "mcp_servers", None) is not None


async def tool_names(servers: Sequence[MCPServer]) -> list[str]:
    """Return the names of the tools that these servers offer."""
    async with _connected(servers):
        return [tool.name for server in servers for tool in await server.list_tools()]


@asynccontextmanager
async def _connected(servers: Sequence[MCPServer]) -> AsyncIterator[None]:
    unconnected = [server for server in servers if getattr(server, "session", None) is None]
    if not unconnected:
        with _recording_errors(servers):
            yield
        return
    manager = MCPServerManager(unconnected, strict=True, connect_in_parallel=True)
    try:
        await manager.connect_all()
    except Exception as error:
        await manager.cleanup_all()
        listed = ", ".join(server.name for server in manager.failed_servers or unconnected)
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        raise InfrastructureError(
            f"cannot connect to the MCP server {listed}: {type(cause).__name__}: {cause}. Start "
            "it by hand to see its error"
        ) from error
    try:
        with _recording_errors(servers):
            yield
    finally:
        await manager.cleanup_all()


@contextmanager
def _recording_errors(servers: Sequence[MCPServer]) -> Iterator[None]:
    """Record calls whose result a server flags as an error. The SDK passes the flag only to the
    custom data extractor, so each server's extractor is wrapped for the duration of the block."""
    originals = [(server, getattr(server, "custom_data_extractor", None)) for server in servers]
    for server, extractor in originals:
        server.custom_data_extractor = _recording_extractor(extractor)
    try:
        yield
    finally:
        for server, extractor in originals:
            server.custom_data_extractor = extractor


def _recording_extractor(extractor: Any) -> Any:
    async def note(result: MCPToolCustomDataContext) -> Mapping[str, Any] | None:
        call = getattr(result.run_context, "tool_call_id", "")
        if result.is_error and (episode := EPISODE.get(None)) is not None:
            episode.note_failure(call, CallFailure.RAISED)
        extracted = extractor(result) if extractor is not None else None
        if inspect.isawaitable(extracted):
            extracted = await extracted
        custom_data: Mapping[str, Any] | None = extracted
        return custom_data

    return note
