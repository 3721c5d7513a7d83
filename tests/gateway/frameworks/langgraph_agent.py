"""A LangGraph agent."""

from cases import SCHEMA, SYSTEM, add, multiply, serve
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

TOOLS = [
    StructuredTool.from_function(
        each, name=each.__name__, description=each.__doc__, args_schema=SCHEMA
    )
    for each in (add, multiply)
]


def play(case, session):
    model = ChatOpenAI(
        model=session["model"], base_url=session["base_url"], api_key=session["api_key"]
    )
    agent = create_react_agent(model, TOOLS, prompt=SYSTEM)
    return agent.invoke({"messages": case["messages"]})["messages"][-1].content


serve(play)
