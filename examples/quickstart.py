"""Teach a small model to use a tool: pip install 'sparring[train,models]', a CPU, a few minutes."""

from agents import Agent, function_tool

from sparring import Suite, failed, measure, passed, train


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@measure
def right_sum(rollout):
    if rollout.tool_calls and rollout.answer.rstrip(".").endswith(str(rollout.expected)):
        return passed(f"used the tool, and says {rollout.expected}")
    return failed(f"no tool, or not {rollout.expected}: {rollout.answer[:40]}")


EXAMPLE = [
    {"role": "user", "content": "31 + 45?"},
    {"type": "function_call", "call_id": "0", "name": "add", "arguments": '{"a": 31, "b": 45}'},
    {"type": "function_call_output", "call_id": "0", "output": "76"},
    {"role": "assistant", "content": "31 + 45 = 76"},
]
agent = Agent(name="adder", instructions="Use the tool.", tools=[add], model="smollm2")
suite = Suite.from_records(
    [{"a": a, "b": b} for a in range(10, 90, 4) for b in range(11, 90, 6)],
    input=lambda row: [*EXAMPLE, {"role": "user", "content": f"{row['a']} + {row['b']}?"}],
    expected=lambda row: row["a"] + row["b"],
)

if __name__ == "__main__":
    settings = {"max_steps": 5, "num_generations": 8, "gradient_accumulation_steps": 1}
    settings |= {"lora": True, "learning_rate": 5e-4, "max_completion_length": 64, "tool_rounds": 1}
    result = train(agent, suite, [right_sum], validation_cases=32, **settings)
    print(result)  # validation reward before and after
    print(result.generate([*EXAMPLE, {"role": "user", "content": "57 + 26?"}]))
