"""Two agents behind a front desk: the desk hands each question off to the specialist for it."""

import json
import random

from agents import Agent, function_tool

from sparring import Environment, Suite, call, failed, measure, passed, worked_example
from sparring.measures import numeric

WORDS = """
lamp kettle rope candle anchor barrel chair hammer ladder blanket whistle saddle
bucket table teapot clock carpet mirror basket bottle pillow wheel bell shovel
apple needle button drum curtain paddle trumpet violin compass kite marble lantern
ribbon scarf stamp stove sword tent thimble towel umbrella vase wagon window
zipper arrow bench brick brush cannon crate desk fork globe guitar helmet
"""
ITEMS = WORDS.split()
SPECIALISTS = ("price", "stock")


def looked_up(specialist: str, item: str) -> int:
    """A number that only the specialist's tool knows."""
    return random.Random(f"{specialist} {item}").randint(11, 98)


@function_tool
def price_of(item: str) -> int:
    """Look up the price of an item."""
    return looked_up("price", item)


@function_tool
def stock_of(item: str) -> int:
    """Look up the stock of an item."""
    return looked_up("stock", item)


@measure
def right_specialist(rollout):
    """The desk hands off once, to the specialist that the question needs."""
    wanted = f"transfer_to_{rollout.case.fields['specialist']}"
    transfers = [call.tool for call in rollout.tool_calls if call.tool.startswith("transfer_to")]
    if transfers == [wanted]:
        return passed(f"handed off with {wanted}")
    return failed(f"handed off with {', '.join(transfers) or 'nothing'}, not {wanted}")


def question(specialist: str, item: str) -> str:
    return f"{specialist} of the {item}?"


# Questions answered correctly, with the handoff, whose result is the SDK's. Small models copy what
# they see.
EXAMPLES = [
    worked_example(
        question(specialist, item),
        call(f"transfer_to_{specialist}").returning(json.dumps({"assistant": specialist})),
        call(price_of if specialist == "price" else stock_of, item=item),
        answer=f"The {specialist} of the {item} is {looked_up(specialist, item)}.",
    )
    for item in ("mug", "cup")
    for specialist in SPECIALISTS
]


class FrontDesk(Environment):
    """Questions about price and stock. The desk has no tools; each specialist has one."""

    measures = (numeric(), right_specialist)
    examples = EXAMPLES
    settings = {"max_completion_length": 128, "max_turns": 4, "temperature": 0.7}

    def agent(self) -> Agent:
        price = Agent(
            name="price", instructions="Look up the price.", tools=[price_of], model="smollm2"
        )
        stock = Agent(
            name="stock", instructions="Look up the stock.", tools=[stock_of], model="smollm2"
        )
        return Agent(
            name="desk",
            instructions="Hand each question off to price or stock.",
            handoffs=[price, stock],
            model="smollm2",
        )

    def suite(self) -> Suite:
        return Suite.from_records(
            [{"specialist": each, "item": item} for item in ITEMS for each in SPECIALISTS],
            id=lambda row: f"{row['specialist']} {row['item']}",  # decides the split of a case
            input=lambda row: question(row["specialist"], row["item"]),
            expected=lambda row: looked_up(row["specialist"], row["item"]),
            shares={"training": 0.5, "validation": 0.2, "held-out": 0.3},
        )
