"""An agent at a shop's desk: three tools, of which each question needs one."""

import json
import zlib

from agents import Agent, function_tool

from sparring import Environment, Suite, call, failed, measure, passed, worked_example
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


# Questions done right: a small model copies what it sees better than what it is told.
EXAMPLES = [
    worked_example(
        PHRASES[0].format(tool.name, "mug"),
        call(tool, item="mug"),
        answer=f"The {tool.name} of the mug is {looked_up(tool.name, 'mug')}.",
    )
    for tool in (price, stock, weight)
]


class Shop(Environment):
    """Questions about price, stock and weight, each to be answered with the tool for it."""

    measures = (numeric(), right_tool)
    examples = EXAMPLES

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
            input="question",
            expected=lambda row: looked_up(row["tool"], row["item"]),
            shares={"training": 0.4, "validation": 0.2, "held-out": 0.4},
        )
