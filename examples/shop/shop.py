"""An agent at a shop's desk: three tools, of which each question needs one."""

import json
import zlib

from agents import Agent, function_tool

from sparring import Environment, Suite, failed, measure, passed
from sparring.measures import numeric

WORDS = """
lamp chair table sofa desk shelf mirror rug clock vase stool bench bed couch cabinet drawer
pillow blanket curtain candle frame basket plant pot kettle toaster fan heater radio camera
guitar drum tent bike helmet ball rope ladder hammer saw drill brush bucket broom hat coat
boot glove scarf belt watch ring bag wallet towel soap comb razor pen ruler
"""
ITEMS = WORDS.split()
TOOLS = ("price", "stock", "weight")
PHRASES = ("{} of the {}?", "What is the {} of the {}?")


def looked_up(tool: str, item: str) -> int:
    """A number that only the tool knows."""
    return zlib.crc32(f"{tool} {item}".encode()) % 90 + 10


@function_tool
def price(item: str) -> int:
    """The price of an item."""
    return looked_up("price", item)


@function_tool
def stock(item: str) -> int:
    """The stock of an item."""
    return looked_up("stock", item)


@function_tool
def weight(item: str) -> int:
    """The weight of an item."""
    return looked_up("weight", item)


@measure
def right_tool(rollout):
    """The tool that the question needs was called for the right item, and nothing else."""
    wanted = (rollout.case.fields["tool"], {"item": rollout.case.fields["item"]})
    called = [(call.tool, json.loads(call.arguments)) for call in rollout.tool_calls]
    if called == [wanted]:
        return passed(f"called {wanted[0]} for the {wanted[1]['item']}")
    calls = ", ".join(f"{tool} {arguments}" for tool, arguments in called) or "nothing"
    return failed(f"called {calls}, not {wanted[0]} {wanted[1]}")


def worked_example(tool: str, item: str) -> list[dict[str, str]]:
    """One question done right. A small model copies what it sees better than what it is told."""
    number, arguments = looked_up(tool, item), json.dumps({"item": item})
    return [
        {"role": "user", "content": PHRASES[0].format(tool, item)},
        {"type": "function_call", "call_id": tool, "name": tool, "arguments": arguments},
        {"type": "function_call_output", "call_id": tool, "output": str(number)},
        {"role": "assistant", "content": f"The {tool} of the {item} is {number}."},
    ]


EXAMPLES = [turn for tool in TOOLS for turn in worked_example(tool, "mug")]


class Shop(Environment):
    """Questions about price, stock and weight, each to be answered with the tool for it."""

    measures = (numeric(), right_tool)

    def agent(self) -> Agent:
        return Agent(
            name="shop",
            instructions="Answer with the right tool.",
            tools=[price, stock, weight],
            model="smollm2",
        )

    def suite(self) -> Suite:
        return Suite.from_records(
            [
                {"question": phrase.format(tool, item), "item": item, "tool": tool}
                for item in ITEMS
                for tool in TOOLS
                for phrase in PHRASES
            ],
            input=lambda row: [*EXAMPLES, {"role": "user", "content": row["question"]}],
            expected=lambda row: looked_up(row["tool"], row["item"]),
            shares={"training": 0.4, "validation": 0.2, "held-out": 0.4},
        )
