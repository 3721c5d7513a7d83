"""A pydantic-ai agent."""

from cases import SCHEMA, SYSTEM, add, multiply, serve
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

TOOLS = [Tool.from_schema(each, each.__name__, each.__doc__, SCHEMA) for each in (add, multiply)]


def play(case, session):
    provider = OpenAIProvider(base_url=session["base_url"], api_key=session["api_key"])
    model = OpenAIChatModel(session["model"], provider=provider)
    agent = Agent(model, system_prompt=SYSTEM, tools=TOOLS)
    return agent.run_sync(case["input"]).output


serve(play)
