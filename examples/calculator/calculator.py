"""An agent that answers sums with a tool."""

from agents import Agent, function_tool

from sparring import Environment, Suite
from sparring.measures import numeric, tool_called


@function_tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def worked_example(a: int, b: int) -> list[dict[str, str]]:
    """One sum done right. A small model copies what it sees better than what it is told."""
    call = f"example_{a}_{b}"
    arguments = f'{{"a": {a}, "b": {b}}}'
    return [
        {"role": "user", "content": f"What is {a} + {b}?"},
        {"type": "function_call", "call_id": call, "name": "add", "arguments": arguments},
        {"type": "function_call_output", "call_id": call, "output": str(a + b)},
        {"role": "assistant", "content": f"{a} + {b} = {a + b}"},
    ]


EXAMPLES = [*worked_example(31, 45), *worked_example(12, 60)]


class Calculator(Environment):
    """Two-digit sums, to be answered with the tool `add`."""

    measures = (numeric(), tool_called("add"))

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
            input=lambda row: [
                *EXAMPLES,
                {"role": "user", "content": f"What is {row['a']} + {row['b']}?"},
            ],
            expected=lambda row: row["a"] + row["b"],
        )
