"""A scripted round finds what training would refuse later."""

import itertools

import pytest
from agents import Agent, function_tool
from agents.mcp import MCPServerStdio

from sparring import tool
from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
from sparring.player.trial_round import longest_cases, trial_round

CASES = [Case("c", "question")]


@function_tool
def work() -> str:
    """Work."""
    raise AssertionError("a trial round runs no tool")


@pytest.fixture
def tried(codecs):
    def run(agent, cases=CASES, context=None, budget=100, positions=None, one_row_reason=""):
        return trial_round(
            agent, codecs["qwen3"], cases, context=context, budget=budget, positions=positions,
            one_row_reason=one_row_reason,
        )  # fmt: skip

    return run


def test_a_plain_agent_has_no_problem(tried):
    assert tried(Agent(name="a", instructions="Work.", tools=[work]), positions=4096) == []


def test_instructions_that_change_are_found_where_a_rollout_may_have_only_one_row(tried):
    clock = itertools.count()
    agent = Agent(name="a", instructions=lambda context, agent: f"It is {next(clock)}.")
    assert tried(agent) == []
    (problem,) = tried(agent, one_row_reason="use 'dapo'")
    assert "instructions or tools change" in problem
    assert "use 'dapo'" in problem


def test_tools_that_change_are_found(tried):
    @function_tool(is_enabled=lambda context, agent: next(turns) == 0)
    def once() -> str:
        """Once."""
        return ""

    turns = itertools.count()
    (problem,) = tried(Agent(name="a", tools=[once]), one_row_reason="use 'dapo'")
    assert "instructions or tools change" in problem


def test_an_image_is_found(tried):
    image = [{"type": "input_image", "image_url": "data:,"}]
    cases = [Case("c", [{"role": "user", "content": image}])]
    (problem,) = tried(Agent(name="a"), cases)
    assert "input_image" in problem


def test_a_prompt_that_is_too_long_is_found_with_its_figures(tried):
    cases = [Case("short", "a"), Case("long", "word " * 3000)]
    (problem,) = tried(Agent(name="a"), longest_cases(cases, 1), budget=200, positions=2048)
    assert "2,048 positions" in problem
    assert "max_completion_length" in problem


def test_a_world_that_cannot_be_made_is_found(tried):
    def world():
        raise OSError("no such database")

    (problem,) = tried(Agent(name="a"), context=world)
    assert "no such database" in problem


def test_worlds_of_a_trial_are_ended(tried):
    ended = []

    class World:
        @tool
        def look(self) -> str:
            """Look."""
            return ""

        def after_rollout(self):
            ended.append(True)

    assert tried(Agent(name="a"), context=World) == []
    assert ended == [True]


def test_a_server_that_cannot_be_reached_is_named(tried):
    server = MCPServerStdio({"command": "false", "args": []}, name="files")
    with pytest.raises(InfrastructureError, match="files"):
        tried(Agent(name="a", mcp_servers=[server]))
