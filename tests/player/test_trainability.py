from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from agents import Agent, RunConfig, WebSearchTool, function_tool, handoff

from sparring.contracts.errors import SettingError, Untrainable
from sparring.player import trainability
from sparring.player.tools import formats_exceptions
from sparring.player.trainability import (
    has_tools,
    obstacles,
    refuse_untrainable,
    refuse_without_tools,
    warn_if_untested_version,
)


@function_tool
def fine() -> str:
    """Fine."""
    return "ok"


def test_an_ordinary_agent_has_no_obstacles():
    inner = Agent(name="inner", tools=[fine])
    agent = Agent(
        name="a", tools=[fine, inner.as_tool("ask", "d")], handoffs=[inner, handoff(inner)]
    )
    assert list(obstacles(agent)) == []


def test_all_obstacles_to_training_are_reported_at_once_with_their_remedies():
    @function_tool(needs_approval=True)
    def risky() -> str:
        """Risky."""
        return "x"

    nested = Agent(name="nested")
    behind = Agent(name="behind", tools=[WebSearchTool()])
    agent = Agent(
        name="a",
        prompt={"id": "p"},
        tools=[risky, nested.as_tool("ask", "d", run_config=RunConfig(model="gpt-5"))],
        handoffs=[behind],
    )
    with pytest.raises(Untrainable) as refused:
        refuse_untrainable(agent, 0.8)
    for way_out in (
        "write it into `instructions`",
        "needs_approval=False",
        "leave `model` out of the run_config of as_tool()",
        "replace it with your own function tool",
    ):
        assert way_out in str(refused.value)


def test_agents_that_hand_off_to_each_other_are_looked_at_once():
    first, second = Agent(name="first"), Agent(name="second")
    first.handoffs.append(second)
    second.handoffs.append(first)
    assert list(obstacles(first)) == []


def test_agents_to_train_are_looked_for_behind_handoffs_and_tools():
    inner, behind = Agent(name="inner"), Agent(name="behind")
    agent = Agent(name="a", tools=[inner.as_tool("ask", "d")], handoffs=[behind])
    refuse_untrainable(agent, 0.8, ["inner", "behind"])
    with pytest.raises(Untrainable, match="no agent 'beyond'; there are 'a', 'behind', 'inner'"):
        refuse_untrainable(agent, 0.8, ["a", "beyond"])


def test_the_tools_of_specialists_and_of_the_worlds_servers_count():
    class World:
        def mcp_servers(self):
            return []

    triage = Agent(name="triage", handoffs=[Agent(name="specialist", tools=[fine])])
    assert has_tools(triage)
    assert has_tools(Agent(name="a"), World)
    assert not has_tools(Agent(name="a", handoffs=[Agent(name="b")]))
    refuse_without_tools(triage)
    with pytest.raises(SettingError, match="has no tools"):
        refuse_without_tools(Agent(name="a"))


@pytest.fixture(autouse=True)
def unwarned() -> Iterator[None]:
    warn_if_untested_version.cache_clear()
    yield
    warn_if_untested_version.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
    monkeypatch.setattr(trainability, "version", lambda _: installed)


@pytest.mark.parametrize("installed", ["0.21.9", "0.25.0", "1.0.0", "0.100.1"])
def test_a_version_outside_of_the_tested_ones_is_named_once(
    monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    install(monkeypatch, installed)
    with pytest.warns(RuntimeWarning, match=rf"openai-agents 0\.22 to 0\.24, but {installed}"):
        warn_if_untested_version()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_untested_version()


@pytest.mark.parametrize("installed", ["0.22.0", "0.23.4", "0.24.99"])
def test_a_tested_version_is_not_warned_of(monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
    install(monkeypatch, installed)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warn_if_untested_version()
    assert seen == []


def test_the_installed_version_decides_who_formats_exceptions() -> None:
    numbers = tuple(map(int, trainability.version("openai-agents").split(".")[:2]))
    assert formats_exceptions() == (numbers >= (0, 24))
