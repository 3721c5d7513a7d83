"""A smolagents agent that calls tools."""

from cases import serve
from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def add(a: int, b: int) -> str:
    """Add two whole numbers.

    Args:
        a: the first number.
        b: the second number.
    """
    return str(a + b)


@tool
def multiply(a: int, b: int) -> str:
    """Multiply two whole numbers.

    Args:
        a: the first number.
        b: the second number.
    """
    return str(a * b)


def play(case, session):
    model = OpenAIServerModel(
        session["model"], api_base=session["base_url"], api_key=session["api_key"]
    )
    agent = ToolCallingAgent([add, multiply], model, max_steps=4, verbosity_level=0)
    return str(agent.run(case["input"]))


serve(play)
