"""A CrewAI agent."""

import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

from cases import SYSTEM, serve
from crewai import LLM, Agent
from crewai.tools import tool


@tool("add")
def add(a: int, b: int) -> str:
    """Add two whole numbers."""
    return str(a + b)


@tool("multiply")
def multiply(a: int, b: int) -> str:
    """Multiply two whole numbers."""
    return str(a * b)


def play(case, session):
    model = LLM(
        model=session["model"],
        provider="openai",
        base_url=session["base_url"],
        api_key=session["api_key"],
    )
    agent = Agent(role="calculator", goal=SYSTEM, backstory=".", llm=model, tools=[add, multiply])
    return agent.kickoff(case["input"]).raw


serve(play)
