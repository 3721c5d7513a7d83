"""Doors: a world so small that a model of random weights can learn it, once it is shown how."""

import json
from pathlib import Path

from agents import Agent, function_tool

from sparring import Environment, Suite, failed, measure, passed

BEHIND = {"red": "a cat", "blue": "a dog", "green": "a bird", "black": "a fish"}
DEMONSTRATIONS = Path(__file__).with_name("demonstrations.jsonl")
PLEAS = ("open {} now", "the {} door", "what is behind {}?", "try {}")


@function_tool
def open_door(colour: str) -> str:
    """Open a door and look behind it.

    Args:
        colour: which door
    """
    return BEHIND.get(colour, "there is no such door")


@measure
def right_door(rollout):
    """The door that was asked for is the one that was opened."""
    wanted = rollout.case.fields["colour"]
    opened = [json.loads(call.arguments).get("colour") for call in rollout.tool_calls]
    if opened == [wanted]:
        return passed(f"opened {wanted}")
    return failed(f"opened {', '.join(map(str, opened)) or 'nothing'}, not {wanted}")


class Doors(Environment):
    """Opens doors and says what is behind them."""

    measures = (right_door, "contains")

    def agent(self):
        return Agent(name="porter", instructions="Open it.", tools=[open_door])

    def suite(self):
        return Suite.from_records(
            [
                {"input": f"{number}: {plea.format(colour)}", "expected": thing, "colour": colour}
                for number in range(100, 124)
                for plea in PLEAS
                for colour, thing in BEHIND.items()
            ]
        )
