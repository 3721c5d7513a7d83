"""An agent that answers sums with a tool."""

from agents import Agent, function_tool

from sparring import Environment, Suite, call, worked_example
from sparring.measures import numeric, tool_called


@function_tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


# Sums done right: a small model copies what it sees better than what it is told.
EXAMPLES = [
    worked_example(f"What is {a} + {b}?", call(add, a=a, b=b), answer=f"{a} + {b} = {a + b}")
    for a, b in ((31, 45), (12, 60))
]


class Calculator(Environment):
    """Two-digit sums, to be answered with the tool `add`."""

    measures = (numeric(), tool_called("add"))
    examples = EXAMPLES

    def agent(self) -> Agent:
        return Agent(
            name="calculator",
            instructions="You answer sums with the tool add.",
            tools=[add],
            model="smollm2",
        )

    def suite(self) -> Suite:
        sums = [(a, b) for a in range(10, 100, 3) for b in range(11, 100, 4)]
        return Suite.from_records(
            [{"a": a, "b": b} for a, b in sums],
            input=lambda row: f"What is {row['a']} + {row['b']}?",
            expected=lambda row: row["a"] + row["b"],
        )
