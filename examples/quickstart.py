"""Teach a small model to use a tool, on a CPU, in a few minutes. Install: see README.md."""

from agents import Agent, function_tool

from sparring import Suite, call, failed, measure, passed, train, worked_example


@function_tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@measure
def right_sum(rollout):
    if rollout.tool_calls and rollout.answer.rstrip(".").endswith(f" {rollout.expected}"):
        return passed(f"used the tool and answered {rollout.expected}")
    return failed(f"no tool call, or not {rollout.expected}: {rollout.answer[:40]}")


examples = [
    worked_example(f"What is {a} + {b}?", call(add, a=a, b=b), answer=f"{a} + {b} = {a + b}")
    for a, b in [(31, 45), (12, 60)]
]
sums = [(a, b) for a in range(10, 90, 4) for b in range(11, 90, 6)]
records = [{"input": f"What is {a} + {b}?", "expected": a + b} for a, b in sums]
suite = Suite.from_records(records)
agent = Agent(name="adder", instructions="You answer sums with the tool add.", tools=[add])

if __name__ == "__main__":
    settings = {"max_steps": 4, "num_generations": 8, "gradient_accumulation_steps": 1}
    settings |= {"lora": True, "learning_rate": 5e-4, "max_completion_length": 80, "max_turns": 3}
    settings |= {"model": "smollm2", "validation_cases": 32, "examples": examples}
    result = train(agent, suite, [right_sum], **settings)
    print(result)  # validation reward before and after
    print(result.generate("What is 57 + 26?", repetition_penalty=1.0))
